package whatif

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/contiv-agent/contiv-agent/trace"
)

// IsWords reports whether arguments are the words of one question, and not questions in JSON.
func IsWords(args []string) bool {
	return len(args) > 0 && !strings.HasPrefix(strings.TrimSpace(args[0]), "{")
}

// Words turns words such as "prod/web-0 prod/db:5432", with a protocol after them if it is not TCP, into a question in JSON. A name is a Service's if asking about
// it has an answer; otherwise a pod's.
func Words(args []string, ask func(trace.Step) trace.Answer) (string, error) {
	if len(args) < 2 || len(args) > 3 {
		return "", fmt.Errorf("%d words: want FROM TO [PROTOCOL], such as prod/web-0 prod/db:5432", len(args))
	}
	from, to := args[0], args[1]
	if !strings.Contains(from, ":") {
		from = "pod:" + from
	}
	protocol := ""
	if at := strings.LastIndex(to, "/"); at > strings.LastIndex(to, ":") && strings.LastIndex(to, ":") > 0 && isProtocol(to[at+1:]) {
		to, protocol = to[:at], to[at+1:]
	}
	if len(args) == 3 {
		if protocol != "" {
			return "", fmt.Errorf("%s and %s: two protocols", args[1], args[2])
		}
		if protocol = args[2]; !isProtocol(protocol) {
			return "", fmt.Errorf("%s: must be TCP, UDP, SCTP or ICMP", protocol)
		}
	}
	if protocol == "" {
		if protocol = "TCP"; !hasPort(to) {
			protocol = "ICMP"
		}
	}
	q := trace.Question{From: from, To: to, Protocol: strings.ToUpper(protocol)}
	if isName(to) {
		q.To = "service:" + to
		if a := ask(trace.Step{Question: q}); a.Error != "" {
			q.To = "pod:" + to
		}
	}
	line, err := json.Marshal(q)
	return string(line), err
}

func isProtocol(word string) bool {
	switch strings.ToUpper(word) {
	case "TCP", "UDP", "SCTP", "ICMP":
		return true
	}
	return false
}

// isName reports whether the target of a packet is a namespace and a name, without a kind before them.
func isName(to string) bool {
	head, _, _ := strings.Cut(to, "/")
	return strings.Contains(to, "/") && !strings.Contains(head, ":")
}

// hasPort reports whether a target has a port: a packet of ICMP has none.
func hasPort(to string) bool {
	if _, err := netip.ParseAddr(to); err == nil {
		return false
	}
	for _, kind := range []string{"pod:", "service:"} {
		to = strings.TrimPrefix(to, kind)
	}
	return strings.Contains(to, ":")
}
