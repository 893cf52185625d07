package show

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/agent/status"
)

// selection is a part of the Services and policies of a status.
type selection struct {
	kind       string   // services, policies, or "": both
	names      []string // NAMESPACE/NAME
	namespaces []string
}

// Select reduces a status to the named Services and policies: "services" or "policies" first, if at all, then names, and namespaces with a slash. It keeps
// only those in the namespaces; none: in all. The error names an object that does not exist.
func Select(st *status.Status, args, namespaces []string) error {
	s := selection{namespaces: slices.Clone(namespaces)}
	if len(args) > 0 && (args[0] == "services" || args[0] == "policies") {
		s.kind, args = args[0], args[1:]
	}
	for _, arg := range args {
		if ns, whole := strings.CutSuffix(arg, "/"); whole {
			s.namespaces = append(s.namespaces, ns)
		} else {
			s.names = append(s.names, arg)
		}
	}
	services, policies := s.services(st.Services), s.policies(st.Policies)
	for _, name := range s.names {
		isService := slices.ContainsFunc(services, func(v status.Service) bool { return v.Name == name })
		isPolicy := slices.ContainsFunc(policies, func(p status.Policy) bool { return nameOf(p.Object) == name })
		switch {
		case s.kind == "policies" && !isPolicy:
			return fmt.Errorf("no policy %s; names are NAMESPACE/NAME, or NAME of a policy without a namespace", name)
		case s.kind != "policies" && !isService:
			return fmt.Errorf("no Service %s; names are NAMESPACE/NAME", name)
		}
	}
	if s.kind == "" && len(s.names) > 0 {
		policies = nil
	}
	st.Services, st.Policies = services, policies
	return nil
}

func (s *selection) services(all []status.Service) []status.Service {
	if s.kind == "policies" {
		return []status.Service{}
	}
	out := []status.Service{}
	for _, v := range all {
		if s.has(v.Name) {
			out = append(out, v)
		}
	}
	return out
}

func (s *selection) policies(all []status.Policy) (out []status.Policy) {
	if s.kind == "services" {
		return nil
	}
	for _, p := range all {
		if s.has(nameOf(p.Object)) {
			out = append(out, p)
		}
	}
	return out
}

// has reports whether an object is selected.
func (s *selection) has(name string) bool {
	ns, _, _ := strings.Cut(name, "/")
	return (len(s.names) == 0 || slices.Contains(s.names, name)) && (len(s.namespaces) == 0 || strings.Contains(name, "/") && slices.Contains(s.namespaces, ns))
}

// nameOf returns the name in "NetworkPolicy prod/web".
func nameOf(object string) string {
	_, name, _ := strings.Cut(object, " ")
	return name
}

// StatusNames returns the names of the Services and policies of a status: service/prod/web.
func StatusNames(st *status.Status) (out []string) {
	for _, s := range st.Services {
		out = append(out, "service/"+s.Name)
	}
	for _, p := range st.Policies {
		out = append(out, objectName(p.Object))
	}
	return out
}
