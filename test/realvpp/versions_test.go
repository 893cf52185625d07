package realvpp

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
)

// TestVPPVersions replaces agents and VPPs by those of a former version and back, under clients with open connections and a stream of new ones. The
// programs of the former version are CONTIV_AGENT_FORMER and CONTIV_VPP_FORMER; one of them may be missing. CONTIV_VPP_FORMER may list several VPPs, as PATH does:
// each takes the place of the present one and gives it back.
func TestVPPVersions(t *testing.T) {
	path := theVPP(t)
	formerAgent, formerVPPs := strings.Join(formerPrograms(t, "CONTIV_AGENT_FORMER"), ""), formerPrograms(t, "CONTIV_VPP_FORMER")
	if formerAgent == "" && len(formerVPPs) == 0 {
		t.Skip("CONTIV_AGENT_FORMER, CONTIV_VPP_FORMER: point one of them at a program of a former version")
	}
	for name, flags := range map[string][]string{"nat44": nil, "cnat": {"--service-renderer", string(agent.RendererCNAT)}} {
		t.Run(name, func(t *testing.T) {
			s := openServed(t, path, servedShape{servedLaws: servedLaws{drains: true}, clients: perCluster, slots: 8, endpoints: perCluster, vips: []bool{false}, policies: onlyClients}, flags...)
			present := s.program
			agents := func(program string) func(*servedCluster) {
				return func(s *servedCluster) { s.program = program; s.upgrade() }
			}
			vpps := func(program string) func(*servedCluster) {
				return func(s *servedCluster) {
					for _, n := range s.nodes {
						n.path = program
						s.crash(n)
					}
				}
			}
			var events []clientEvent
			if formerAgent != "" {
				events = append(events,
					clientEvent{name: "agents of the former version", do: agents(formerAgent), spares: true},
					clientEvent{name: "present agents", do: agents(present), spares: true},
					// Of mappings of a version that cannot drain, an endpoint between two others cannot drain either. In this order none is between others when
					// it terminates: see docs/adr/0031-draining-on-nat44.md.
					clientEvent{name: "rolling update by present agents", do: (*servedCluster).roll, spares: true, replaces: true},
					clientEvent{name: "agents of the former version again", do: agents(formerAgent), spares: true},
					clientEvent{name: "present agents again", do: agents(present), spares: true},
				)
			}
			for _, former := range formerVPPs {
				events = append(events,
					clientEvent{name: "VPPs of the former version, " + former, do: vpps(former), loses: true},
					clientEvent{name: "present VPPs, after " + former, do: vpps(path), loses: true},
				)
			}
			for _, e := range events {
				s.play(e)
				all := s.count(false)
				t.Logf("| %s | %s | %s |", e.name, name, all)
				s.judge(e, all)
			}
		})
	}
}

// formerPrograms are the programs that a variable names.
func formerPrograms(t *testing.T, variable string) []string {
	t.Helper()
	paths := filepath.SplitList(os.Getenv(variable))
	for _, path := range paths {
		if _, err := exec.LookPath(path); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
	}
	return paths
}
