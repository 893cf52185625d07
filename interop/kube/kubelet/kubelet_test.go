package kubelet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Images are found by their names, without tags and digests; another one's error names those that exist.
func TestImages(t *testing.T) {
	cfg := Config{Images: []Image{{Names: []string{"registry.k8s.io/pause", "pause"}}, {Names: []string{"localhost:5000/agnhost"}}}}
	for _, reference := range []string{"pause", "pause:3.10", "registry.k8s.io/pause:3.10@sha256:00", "localhost:5000/agnhost", "localhost:5000/agnhost:2.59"} {
		if _, err := cfg.image(reference); err != nil {
			t.Errorf("%s: %v", reference, err)
		}
	}
	for _, reference := range []string{"nginx", "example/pause", "localhost:5000", ""} {
		if _, err := cfg.image(reference); err == nil || !strings.Contains(err.Error(), "localhost:5000/agnhost, pause, registry.k8s.io/pause") {
			t.Errorf("%s: %v", reference, err)
		}
	}
}

// A container's command replaces the image's program, its arguments only the image's arguments.
func TestCommandLine(t *testing.T) {
	image := &Image{Path: "/agnhost", Program: "/cache/agnhost", Entrypoint: []string{"/agnhost"}, Args: []string{"pause"}}
	for _, k := range []struct{ command, args, want string }{
		{"", "", "/agnhost pause"}, {"", "netexec --http-port=80", "/agnhost netexec --http-port=80"}, {"sh", "", "sh"}, {"sh", "-c true", "sh -c true"},
	} {
		c := &corev1.Container{Command: strings.Fields(k.command), Args: strings.Fields(k.args)}
		if got := strings.Join(image.argv(c), " "); got != k.want {
			t.Errorf("%q %q: %q, want %q", k.command, k.args, got, k.want)
		}
	}
	for _, k := range [][2]string{{"/agnhost pause", "/cache/agnhost pause"}, {"agnhost", "/cache/agnhost"}, {"sh", "sh"}} {
		if got := strings.Join(image.onMachine(strings.Fields(k[0])), " "); got != k[1] {
			t.Errorf("%q: %q, want %q", k[0], got, k[1])
		}
	}
}

// $(NAME) is replaced as the API describes it.
func TestVariables(t *testing.T) {
	env := []string{"A=1", "B=two words", "A=2"}
	for text, want := range map[string]string{
		"$(A)": "2", "x$(B)y": "xtwo wordsy", "$$(A)": "$(A)", "$(NONE)": "$(NONE)", "$A ${A} $": "$A ${A} $", "$(A": "$(A", "": "",
	} {
		if got := substitute(text, env); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A Pod's phase follows from the states of its containers and the restart policy.
func TestPhase(t *testing.T) {
	states := func(text string) (out []corev1.ContainerStatus) {
		for _, word := range strings.Fields(text) {
			var s corev1.ContainerStatus
			switch word {
			case "waits":
				s.State.Waiting = &corev1.ContainerStateWaiting{}
			case "backs-off":
				s.State.Waiting = &corev1.ContainerStateWaiting{}
				s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
			case "runs":
				s.State.Running = &corev1.ContainerStateRunning{}
			default:
				s.State.Terminated = &corev1.ContainerStateTerminated{}
				_, _ = fmt.Sscan(word, &s.State.Terminated.ExitCode)
			}
			out = append(out, s)
		}
		return out
	}
	const always, failed, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	for _, k := range []struct {
		policy     corev1.RestartPolicy
		init, main string
		want       corev1.PodPhase
	}{
		{always, "", "runs", corev1.PodRunning},
		{always, "", "runs waits", corev1.PodPending},
		{always, "", "backs-off", corev1.PodRunning},
		{always, "", "0", corev1.PodRunning},
		{always, "0", "runs", corev1.PodRunning},
		{always, "runs", "waits", corev1.PodPending},
		{always, "1", "waits", corev1.PodPending},
		{never, "1", "waits", corev1.PodFailed},
		{never, "", "0 0", corev1.PodSucceeded},
		{never, "", "0 1", corev1.PodFailed},
		{never, "", "0 runs", corev1.PodRunning},
		{failed, "", "0", corev1.PodSucceeded},
		{failed, "", "0 1", corev1.PodRunning},
	} {
		if got := phase(k.policy, states(k.init), states(k.main)); got != k.want {
			t.Errorf("%s, init %q, containers %q: %s, want %s", k.policy, k.init, k.main, got, k.want)
		}
	}
}

// A journal keeps whole lines of both streams in order, and gives those that kubectl logs asks for.
func TestJournal(t *testing.T) {
	j := newJournal()
	out, complaint := j.writer("stdout"), j.writer("stderr")
	for _, text := range []string{"one\ntw", "o\n", "three"} {
		_, _ = out.Write([]byte(text))
	}
	_, _ = complaint.Write([]byte("complaint\n"))
	two, six := int64(2), int64(6)
	for want, o := range map[string]logOptions{
		"one\ntwo\ncomplaint\n": {}, "two\ncomplaint\n": {tail: &two}, "one\ntw": {limit: &six}, "complaint\n": {stream: "stderr"}, "": {since: time.Now().Add(time.Hour)},
	} {
		var got strings.Builder
		if err := j.copyTo(t.Context(), &got, func() {}, o); err != nil || got.String() != want {
			t.Errorf("%+v: %q, %v, want %q", o, got.String(), err, want)
		}
	}
	var got strings.Builder
	done := make(chan error)
	go func() { done <- j.copyTo(t.Context(), &got, func() {}, logOptions{follow: true}) }()
	_, _ = out.Write([]byte(" and more\n"))
	_, _ = out.Write([]byte("no end"))
	j.finish()
	if err := <-done; err != nil || got.String() != "one\ntwo\ncomplaint\nthree and more\nno end" {
		t.Errorf("%q, %v", got.String(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- newJournal().copyTo(ctx, &got, func() {}, logOptions{follow: true}) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The oldest lines give way.
func TestJournalIsBounded(t *testing.T) {
	j := newJournal()
	w := j.writer("stdout")
	long := strings.Repeat("x", 1<<16)
	for i := range 200 {
		_, _ = fmt.Fprintln(w, i, long)
	}
	lines, next, _ := j.after(0)
	if j.size > journalSize || next != 200 || !strings.HasPrefix(string(lines[len(lines)-1].text), "199 ") || strings.HasPrefix(string(lines[0].text), "0 ") {
		t.Errorf("%d bytes in %d lines, next %d", j.size, len(lines), next)
	}
}
