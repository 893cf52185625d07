package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/util/retry"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// runs is what a program in a container does: what it writes, and its exit code.
type runs func(pod *corev1.Pod, command []string) (stdout, stderr string, code int)

// exec lets the API server run programs in Pods, as at a kubelet: a server on each node's behalf, which the Node names.
func (k *fakeKubelet) exec(t tb, does runs) {
	t.Helper()
	for _, h := range k.hosts {
		name := h.name
		mux := http.NewServeMux()
		mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
			pod, ok := k.named(r.PathValue("namespace"), r.PathValue("pod"))
			if !ok || pod.Spec.NodeName != name {
				http.Error(w, fmt.Sprintf("%s does not run here", r.URL.Path), http.StatusNotFound)
				return
			}
			attend(w, r, func(command []string) (string, string, int) { return does(&pod, command) })
		})
		server := httptest.NewTLSServer(mux)
		t.Cleanup(server.Close)
		_, port, err := net.SplitHostPort(server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		number, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			node, err := k.c.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			// The API server calls a kubelet by its node's host name first, if it has one.
			node.Status.Addresses = slices.DeleteFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeHostName })
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "127.0.0.1"})
			node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
			_, err = k.c.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// attend is the kubelet's side of exec, v4.channel.k8s.io over SPDY (the API server translates for clients that use
// WebSocket): the requested streams and one for the exit code.
func attend(w http.ResponseWriter, r *http.Request, runs func(command []string) (stdout, stderr string, code int)) {
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
		return // the client has the error
	}
	query, want := r.URL.Query(), 1
	for _, stream := range []string{"input", "output", "error"} {
		if query.Get(stream) != "" {
			want++
		}
	}
	opened := make(chan httpstream.Stream, want)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() { <-replied; opened <- s }()
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	streams := map[string]httpstream.Stream{}
	for len(streams) < want {
		select {
		case s := <-opened:
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-conn.CloseChan():
			return
		case <-ctx.Done():
			return
		}
	}
	stdout, stderr, code := runs(query["command"])
	for kind, text := range map[string]string{corev1.StreamTypeStdout: stdout, corev1.StreamTypeStderr: stderr} {
		if s := streams[kind]; s != nil {
			_, _ = s.Write([]byte(text)) // who has gone away does not read the rest either
			_ = s.Close()
		}
	}
	_, _ = streams[corev1.StreamTypeError].Write(ended(code))
	_ = streams[corev1.StreamTypeError].Close()
	select {
	case <-conn.CloseChan(): // by the client, when it has read everything
	case <-ctx.Done():
	}
}

// ended is the last word of an exec.
func ended(code int) []byte {
	status := metav1.Status{Status: metav1.StatusSuccess}
	if code != 0 {
		status = metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Message: fmt.Sprintf("exit code %d", code),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(code)}}},
		}
	}
	b, err := json.Marshal(&status)
	if err != nil {
		panic(err) // plain strings
	}
	return b
}
