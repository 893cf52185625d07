package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent/flows/goldmane"
)

// Whisker's backend, a program of Calico that the module proxy does not have whole, shows the flows of our nodes: CONTIV_WHISKER is its path.
func TestWhisker(t *testing.T) {
	program := os.Getenv("CONTIV_WHISKER")
	if program == "" {
		t.Skip("CONTIV_WHISKER is not set; point it at Calico's whisker-backend")
	}
	authority := newAuthority(t, t.TempDir(), "tigera-ca-private")
	cert, key := authority.issue("goldmane", "", time.Hour)
	clientCert, clientKey := authority.issue("whisker", "", time.Hour)
	g := startGoldmane(t, "127.0.0.1:0", cert, key, authority.file)
	defer g.stop()
	v, log := startPushing(t, goldmane.Config{Addr: g.addr, CA: authority.file, Cert: clientCert, Key: clientKey})
	sendGoldmanePackets(v)

	port := freePort(t)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "GOLDMANE_HOST="+g.addr, "HOST=127.0.0.1", fmt.Sprintf("PORT=%d", port),
		"TLS_CERT_PATH="+clientCert, "TLS_KEY_PATH="+clientKey, "CA_CERT_PATH="+authority.file)
	start(t, "whisker-backend", cmd)
	want := []string{
		"Dst Allow -/PRIVATE NETWORK -> default/web:80 tcp in 2 out 0: NetworkPolicy default/web Allow 0",
		"Dst Allow default/client-7d9f8b6c5-* -> default/web:8080 tcp in 0 out 0: NetworkPolicy default/web Allow 1",
		"Dst Deny -/PRIVATE NETWORK -> default/web:80 tcp in 1 out 0: EndOfTier / Deny -1, by NetworkPolicy default/web",
		"Src Allow default/client-7d9f8b6c5-* -> default/web:8080 tcp in 0 out 1: NetworkPolicy default/web Allow 1",
		"Src Deny default/web -> -/PRIVATE NETWORK:53 tcp in 0 out 1: AdminNetworkPolicy /guard Deny 0",
		"Src Deny default/web -> -/PUBLIC NETWORK:53 tcp in 0 out 2: EndOfTier / Deny -1, by NetworkPolicy default/web",
	}
	var got []string
	var failed error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && !slices.Equal(got, want); time.Sleep(200 * time.Millisecond) {
		got, failed = whiskerFlows(t, fmt.Sprintf("http://127.0.0.1:%d/flows", port))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got), %v:\n%s\nlog:\n%s", failed, diff, log)
	}
	filtered, err := whiskerFlows(t, fmt.Sprintf(`http://127.0.0.1:%d/flows?filters={"actions":["Deny"],"policies":[{"kind":"AdminNetworkPolicy","name":{"type":"Exact","value":"guard"}}]}`, port))
	if diff := cmp.Diff(want[4:5], filtered); diff != "" {
		t.Errorf("filter of an action and a policy (-want +got), %v:\n%s", err, diff)
	}
}

type whiskerHit struct {
	Kind, Name, Namespace, Action string
	RuleIndex                     int `json:"rule_index"`
	Trigger                       *whiskerHit
}

// whiskerFlows are the flows that Whisker's page gets, without their times.
func whiskerFlows(t *testing.T, url string) ([]string, error) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Action, Protocol, Reporter string
			SourceName                 string `json:"source_name"`
			SourceNamespace            string `json:"source_namespace"`
			DestName                   string `json:"dest_name"`
			DestNamespace              string `json:"dest_namespace"`
			DestPort                   int    `json:"dest_port"`
			PacketsIn                  int    `json:"packets_in"`
			PacketsOut                 int    `json:"packets_out"`
			Policies                   struct{ Enforced []whiskerHit }
		}
	}
	if err := json.Unmarshal(body, &list); err != nil || answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %w: %s", answer.Status, err, body)
	}
	var out []string
	for _, f := range list.Items {
		if f.DestPort == 9 { // of startPushing
			continue
		}
		var hits []string
		for _, h := range f.Policies.Enforced {
			hit := fmt.Sprintf("%s %s/%s %s %d", h.Kind, h.Namespace, h.Name, h.Action, h.RuleIndex)
			if h.Trigger != nil {
				hit += fmt.Sprintf(", by %s %s/%s", h.Trigger.Kind, h.Trigger.Namespace, h.Trigger.Name)
			}
			hits = append(hits, hit)
		}
		out = append(out, fmt.Sprintf("%s %s %s/%s -> %s/%s:%d %s in %d out %d: %s", f.Reporter, f.Action, f.SourceNamespace, f.SourceName, f.DestNamespace, f.DestName, f.DestPort, f.Protocol,
			f.PacketsIn, f.PacketsOut, strings.Join(hits, "; ")))
	}
	slices.Sort(out)
	return out, nil
}
