package kube

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// BenchmarkPods measures the time from the creation of a Pod at the API server, by way of scheduler, kubelet and CNI plugin, to the first answered
// request to it from outside of its node, while the node has as many other Pods as a kubelet takes. Each Pod is deleted before the next begins.
func BenchmarkPods(b *testing.B) {
	if err := netns.Possible(); err != nil {
		b.Skip(err)
	}
	others, measured := 108, 100 // and the agent's
	if os.Getenv("SHORT") != "" {
		others, measured = 10, 10
	}
	for range b.N {
		s := newSite(b, "../../examples/guestbook/00-cluster.yaml", nodes[:1])
		began := time.Now()
		for i := range others {
			s.newPod(b, fmt.Sprint("other-", i))
		}
		eventually(b, "other Pods ready", func() error { return s.podsReady(b, "default") }, s.kubelets()...)
		b.Logf("%d other Pods ready after %s", others, time.Since(began).Round(time.Second/10))
		var whole, heard, add []time.Duration
		for i := range measured {
			t := s.measure(b, fmt.Sprint("measured-", i))
			whole, heard, add = append(whole, t.whole), append(heard, t.heard), append(add, t.add)
		}
		b.ReportMetric(0, "ns/op")
		for name, all := range map[string][]time.Duration{"": whole, "scheduled-": heard, "add-": add} {
			slices.Sort(all)
			b.ReportMetric(ms(all[len(all)/2]), name+"p50-ms")
			b.ReportMetric(ms(all[len(all)*99/100]), name+"p99-ms")
		}
		b.ReportMetric(float64(others+2), "pods")
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// newPod creates a web server that the scheduler binds to node-1.
func (s *site) newPod(b *testing.B, name string) {
	b.Helper()
	grace := int64(1)
	_, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Create(b.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: nodes[0]}, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "c", Image: "example/frontend"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
}

// times are those of one Pod: from its creation to the first answer; to when its kubelet heard of it; and of ADD.
type times struct{ whole, heard, add time.Duration }

func (s *site) measure(b *testing.B, name string) (t times) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	pods := s.client.CoreV1().Pods(metav1.NamespaceDefault)
	changes, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		b.Fatal(err)
	}
	defer changes.Stop()
	began := time.Now()
	s.newPod(b, name)
	for ip := ""; ip == ""; {
		select {
		case e := <-changes.ResultChan():
			if pod, ok := e.Object.(*corev1.Pod); ok {
				ip = pod.Status.PodIP
			}
			if ip == "" {
				continue
			}
		case <-ctx.Done():
			b.Fatalf("%s: no address", name)
		}
		for ctx.Err() == nil {
			if _, err := page("http://" + ip + ":8080"); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	t.whole = time.Since(began)
	text := s.nodes[0].kubelet.all()
	if m := regexp.MustCompile(`time=(\S+) level=INFO msg=Pod pod=default/` + name + `\n`).FindStringSubmatch(text); m != nil {
		if at, err := time.Parse(time.RFC3339Nano, m[1]); err == nil {
			t.heard = at.Sub(began)
		}
	}
	if m := regexp.MustCompile(`msg=ADD pod=default/` + name + ` took=(\S+)`).FindStringSubmatch(text); m != nil {
		t.add, err = time.ParseDuration(m[1])
	}
	if t.heard == 0 || t.add == 0 || err != nil {
		b.Fatalf("the kubelet's log has nothing of %s: %v", name, err)
	}
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	for e := range changes.ResultChan() {
		if e.Type == "DELETED" {
			return t
		}
	}
	b.Fatalf("%s is not deleted", name)
	return t
}
