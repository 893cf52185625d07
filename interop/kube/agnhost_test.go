package kube

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/model"
)

// agnhost is Kubernetes' test image as far as it is used here: "connect" opens a connection through the VPPs and says what became of it
// in agnhost's words. It does not wait: a VPP of the fabric that says nothing at once never will.
func (f *fabric) agnhost(pod *corev1.Pod, command []string) (stdout, stderr string, code int) {
	if len(command) < 2 || command[0] != "/agnhost" || command[1] != "connect" {
		return "", fmt.Sprintf("%q: no such program\n", command), 127
	}
	flags := flag.NewFlagSet("connect", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Duration("timeout", 0, "")
	protocol := flags.String("protocol", "tcp", "")
	if err := flags.Parse(command[2:]); err != nil || flags.NArg() != 1 {
		return "", fmt.Sprintf("%q: want one address: %v\n", command, err), 2
	}
	to, err := netip.ParseAddrPort(flags.Arg(0))
	if err != nil {
		return "", fmt.Sprintf("DNS: %v\n", err), 1
	}
	proto, err := model.ParseProtocol(strings.ToUpper(*protocol))
	if err != nil {
		return "", fmt.Sprintf("OTHER: %v\n", err), 1
	}
	_, err = f.dial(pod, proto, to)
	f.note(pod.Name+" "+proto.String()+" "+to.String(), err)
	switch {
	case err == nil:
		return "", "", 0
	case errors.Is(err, errRefused):
		return "", "REFUSED\n", 1
	case errors.Is(err, errSilence):
		return "", "TIMEOUT\n", 1
	}
	return "", fmt.Sprintf("OTHER: %v\n", err), 1
}

// note keeps why a connection is not made, for who wonders.
func (f *fabric) note(which string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why == nil {
		f.why = map[string]string{}
	}
	delete(f.why, which)
	if err != nil {
		f.why[which] = err.Error()
	}
}

// unanswered returns the connections that failed at the last attempt.
func (f *fabric) unanswered() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out strings.Builder
	for _, which := range slices.Sorted(maps.Keys(f.why)) {
		fmt.Fprintf(&out, "%s: %s\n", which, f.why[which])
	}
	return out.String()
}

// listening returns the ports that a Pod's programs listen on: the ports of its containers, and those in agnhost's
// arguments.
func listening(pod *corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		for _, p := range c.Ports {
			out[strings.ToUpper(fmt.Sprintf("%s %d", p.Protocol, p.ContainerPort))] = true
		}
		for _, env := range c.Env { // agnhost porter
			if port, ok := strings.CutPrefix(env.Name, "SERVE_SCTP_PORT_"); ok {
				out["SCTP "+port] = true
			}
		}
		words := strings.Fields(strings.Join(c.Command, " ")) // agnhost serve-hostname
		for n, word := range words {
			if word != "--port" || n+1 == len(words) {
				continue
			}
			if _, err := strconv.ParseUint(words[n+1], 10, 16); err == nil && strings.Contains(c.Command[len(c.Command)-1], "--udp") {
				out["UDP "+words[n+1]] = true
			} else if err == nil {
				out["TCP "+words[n+1]] = true
			}
		}
	}
	return out
}

// listens reports whether a program in a spot listens on a port.
func (f *fabric) listens(at spot, protocol model.Protocol, port uint16) bool {
	for _, pod := range f.kubelet.running() {
		if its, err := f.spotOf(&pod); err == nil && its == at && listening(&pod)[fmt.Sprintf("%s %d", protocol, port)] {
			return true
		}
	}
	return false
}
