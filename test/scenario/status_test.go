package scenario

import (
	"fmt"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/model"
)

func (s *story) cmdStatus(ts *testscript.TestScript, args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return fmt.Errorf("want NODE [SERVICE]")
	}
	if _, err := s.vpp(args[0]); err != nil {
		return err
	}
	st := s.cluster.Agent(args[0]).Status()
	only := ""
	if len(args) == 2 {
		only = ref("Service", args[1]).String()
	}
	out := ts.Stdout()
	for _, line := range describe(st, only) {
		fmt.Fprintln(out, s.short(line))
	}
	return nil
}

// cmdHealth prints the node's answer to a load balancer's health check of a Service.
func (s *story) cmdHealth(ts *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want NODE SERVICE")
	}
	if _, err := s.vpp(args[0]); err != nil {
		return err
	}
	r := ref("Service", args[1])
	svc := s.cluster.Agent(args[0]).Rendered(model.ServiceID{Namespace: r.Namespace, Name: r.Name})
	if svc == nil || svc.HealthCheck.NodePort == 0 {
		return fmt.Errorf("%s has no health check", args[1])
	}
	fmt.Fprintf(ts.Stdout(), "port %d: %d endpoints by IPv4, %d by IPv6\n", svc.HealthCheck.NodePort, svc.HealthCheck.Local4, svc.HealthCheck.Local6)
	return nil
}

// describe returns a status as lines: of one object ("Service default/web"), or of everything.
func describe(st *status.Status, only string) []string {
	var out []string
	for _, svc := range st.Services {
		if name := "Service " + svc.Name; only == "" || only == name {
			out = append(out, name+": "+svc.State)
			for _, r := range svc.Reasons {
				out = append(out, "  "+r)
			}
		}
	}
	for _, p := range st.Policies {
		if only == "" || only == p.Object {
			out = append(out, p.Object+": "+p.State+" "+p.Text)
			for _, r := range p.Reasons {
				out = append(out, "  "+r)
			}
		}
	}
	if only != "" {
		return out
	}
	if !st.InSync {
		out = append(out, "waiting: "+st.Waiting)
	}
	for _, r := range st.Refused {
		out = append(out, "refused: "+r.Error)
	}
	for _, n := range st.Notes {
		out = append(out, "note: "+n.Object+": "+n.Reason)
	}
	for _, v := range st.Unwell {
		out = append(out, "unwell: "+v.Key+" "+v.State+" "+v.Error)
	}
	return out
}
