package recorder

import (
	"net/netip"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// pod is an event as pods cause it.
func pod() *event.Update {
	o := &model.Pod{
		ID: model.PodID{Namespace: "prod", Name: "web-5d4f8c7b9-x2x7p"}, NodeName: "worker-7", IPs: []netip.Addr{netip.MustParseAddr("10.1.1.2")},
		Labels: map[string]string{"app": "web", "pod-template-hash": "5d4f8c7b9", "tier": "front"}, ServiceAccount: "default",
		ContainerPorts: []model.ContainerPort{{Protocol: model.TCP, Port: 8080}},
	}
	return &event.Update{Source: "kube", Changes: []event.Change{{Ref: o.Ref(), Object: o}}}
}

// BenchmarkLoop measures what the loop pays for an event: without a recorder, with room in the queue, and with a full queue.
func BenchmarkLoop(b *testing.B) {
	ev := pod()
	for _, name := range []string{"off", "room", "full"} {
		b.Run(name, func(b *testing.B) {
			var r *Recorder
			if name != "off" {
				r = opened(b)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if name == "room" && i%queueLength == 0 {
					for len(r.queue) > 0 {
						<-r.queue
					}
				}
				r.Observe(ev)
			}
		})
	}
}

// BenchmarkWriter measures what the writer pays for an event of a pod, in batches, with the changes of files.
func BenchmarkWriter(b *testing.B) {
	r := opened(b)
	it := item{at: time.Now(), ev: pod()}
	b.ReportAllocs()
	n := 0
	lines := r.lines(nil, &it)
	for lines = lines[:0]; b.Loop(); n++ {
		if lines = r.lines(lines, &it); len(lines) == batchLines {
			r.writeBatch(b.Context(), lines)
			lines = lines[:0]
		}
	}
	r.writeBatch(b.Context(), lines)
	bytes, _ := r.writer.Size()
	b.ReportMetric(float64(bytes), "bytes-kept")
	r.close()
}

func opened(b *testing.B) *Recorder {
	b.Helper()
	r, err := New(Config{Dir: b.TempDir(), Node: "node-1"})
	if err != nil {
		b.Fatal(err)
	}
	return r
}
