package flows

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// Filter selects flows. Empty fields match all.
type Filter struct {
	Verdict Verdict
	// From and To are a namespace ("prod"), a pod, workload or Service in it ("prod/web"), or an address ("10.1.1.2").
	From, To string
	// Staged is a verdict that staged policies would change the flow's verdict to.
	Staged Verdict
}

// Matches reports whether a flow matches all fields. A nil Filter matches all flows.
func (f *Filter) Matches(flow *Flow) bool {
	return f == nil || (f.Staged == "" || f.Staged == flow.WouldChange()) && (f.Verdict == "" || f.Verdict == flow.Verdict) && matchesPeer(f.From, &flow.Source) && matchesPeer(f.To, &flow.Destination)
}

func matchesPeer(text string, p *Peer) bool {
	if text == "" {
		return true
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return a == p.Address
	}
	namespace, name, named := strings.Cut(text, "/")
	return p.Namespace == namespace && (!named || p.Name == name || p.Workload == name)
}

// Validate returns an error for a field that can match no flow.
func (f *Filter) Validate() error {
	for name, v := range map[string]Verdict{"verdict": f.Verdict, "staged": f.Staged} {
		if v != "" && v != Allowed && v != Dropped {
			return fmt.Errorf("%s %q: must be %s or %s", name, v, Allowed, Dropped)
		}
	}
	for name, text := range map[string]string{"from": f.From, "to": f.To} {
		if namespace, rest, named := strings.Cut(text, "/"); text != "" && (namespace == "" || named && rest == "" || strings.Contains(rest, "/")) {
			return fmt.Errorf("%s %q: must be NAMESPACE, NAMESPACE/NAME or an address", name, text)
		}
	}
	return nil
}

// Query writes the filter as parameters of a request. ParseFilter reads them.
func (f *Filter) Query() url.Values {
	q := url.Values{}
	for name, text := range map[string]string{"verdict": string(f.Verdict), "from": f.From, "to": f.To, "staged": string(f.Staged)} {
		if text != "" {
			q.Set(name, text)
		}
	}
	return q
}

// ParseFilter reads and validates the parameters of a request.
func ParseFilter(q url.Values) (*Filter, error) {
	f := &Filter{Verdict: Verdict(q.Get("verdict")), From: q.Get("from"), To: q.Get("to"), Staged: Verdict(q.Get("staged"))}
	return f, f.Validate()
}
