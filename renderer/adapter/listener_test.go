package adapter

import (
	"fmt"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// record is a listener that records its calls.
type record []string

func (r *record) ServiceChanged(old, now *renderer.ContivService) {
	text := func(s *renderer.ContivService) string {
		if s == nil {
			return "-"
		}
		return fmt.Sprintf("%s:%d", s.ID.Name, s.SessionAffinityTimeout)
	}
	*r = append(*r, text(old)+">"+text(now))
}

func (r *record) NodeIPsChanged(ips *renderer.IPAddresses) { *r = append(*r, ips.String()) }

// A listener receives each change once; a resync passes only differences.
func TestListen(t *testing.T) {
	svc := func(name string, n uint32) *renderer.ContivService {
		s := renderer.NewContivService()
		s.ID, s.SessionAffinityTimeout = model.ServiceID{Namespace: "default", Name: name}, n
		return s
	}
	var r record
	api := Listen(&r)
	a, b, c := svc("a", 1), svc("b", 1), svc("c", 1)
	for _, step := range []struct {
		call func() error
		want []string
	}{
		{func() error { return api.AddService(a) }, []string{"->a:1"}},
		{func() error { return api.UpdateService(a, svc("a", 2), nil) }, []string{"a:1>a:2"}},
		{func() error { return api.AddService(b) }, []string{"->b:1"}},
		{func() error {
			return api.Resync(&renderer.ResyncEventData{NodeIPs: renderer.NewIPAddresses(), Services: []*renderer.ContivService{b, c}})
		}, []string{"[]", "a:2>-", "->c:1"}},
		{func() error { return api.DeleteService(svc("b", 1), nil) }, []string{"b:1>-"}},
		{func() error { return api.DeleteService(b, nil) }, nil},
		{func() error { return api.UpdateNodePortServices(renderer.NewIPAddresses(), nil) }, []string{"[]"}},
	} {
		r = nil
		if err := step.call(); err != nil || !slices.Equal(r, step.want) {
			t.Errorf("heard %q (%v), want %q", r, err, step.want)
		}
	}
	if _, ok := api.(renderer.NodeRenderer); ok {
		t.Error("a listener that does not ask for the node's state gets it")
	}
}
