package interop

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
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

	b := whiskerBackend{at: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	ca, err := os.ReadFile(authority.file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	b.client = &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	t.Cleanup(b.client.CloseIdleConnections)
	_, port, _ := net.SplitHostPort(b.at)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "GOLDMANE_HOST="+g.addr, "HOST=127.0.0.1", "PORT="+port, "TLS_CERT_PATH="+clientCert, "TLS_KEY_PATH="+clientKey,
		"CA_CERT_PATH="+authority.file, "SERVER_TLS_CERT_PATH="+cert, "SERVER_TLS_KEY_PATH="+key)
	start(t, "whisker-backend", cmd)
	want := []string{
		"Dst Allow -/PRIVATE NETWORK -> default/web:80 tcp in 2 out 0: NetworkPolicy default/web Allow 0",
		"Dst Allow -/PRIVATE NETWORK -> default/web:8080 tcp in 0 out 0: Profile /__NO_MATCH__ Allow 0",
		"Dst Allow default/client-7d9f8b6c5-* -> default/web:8080 tcp in 0 out 0: NetworkPolicy default/web Allow 1",
		"Dst Deny -/PRIVATE NETWORK -> default/web:80 tcp in 1 out 0: EndOfTier / Deny -1, by NetworkPolicy default/web",
		"Src Allow default/client-7d9f8b6c5-* -> default/web:8080 tcp in 0 out 1: NetworkPolicy default/web Allow 1",
		"Src Allow default/web -> default/web:8080 tcp in 0 out 1: NetworkPolicy default/web Allow 1",
		"Src Deny default/web -> -/PRIVATE NETWORK:53 tcp in 0 out 1: AdminNetworkPolicy /guard Deny 0",
		"Src Deny default/web -> -/PUBLIC NETWORK:53 tcp in 0 out 2: EndOfTier / Deny -1, by NetworkPolicy default/web",
	}
	var got []string
	var failed error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && !slices.Equal(got, want); time.Sleep(200 * time.Millisecond) {
		got, failed = b.list(t, "{}")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got), %v:\n%s\nlog:\n%s", failed, diff, log)
	}
	filtered, err := b.list(t, `{"actions":["Deny"],"policies":[{"kind":"EndOfTier"}]}`)
	if diff := cmp.Diff([]string{want[3], want[7]}, filtered); diff != "" {
		t.Errorf("filter of an action and a policy (-want +got), %v:\n%s", err, diff)
	}
	streamed, err := b.stream(t, len(want))
	if diff := cmp.Diff(want, streamed); diff != "" {
		t.Errorf("the stream that the page reads (-want +got), %v:\n%s", err, diff)
	}
	for kind, want := range map[string]string{ // the lists in the page's filters
		"SourceName": "[PRIVATE NETWORK client-7d9f8b6c5-* web]", "DestNamespace": "[Global default]", "PolicyName": "[__NO_MATCH__ guard web]", "PolicyTier": "adminnetworkpolicy default]",
	} {
		if hints, err := b.hints(t, kind); !strings.Contains(hints, want) {
			t.Errorf("values of %s: %s, %v; want %s", kind, hints, err, want)
		}
	}
}

// whiskerBackend is Whisker's backend. After v3.32 it has TLS alone.
type whiskerBackend struct {
	at     string
	client *http.Client
}

func (b whiskerBackend) get(t *testing.T, path string, values url.Values) (*http.Response, error) {
	var errs []error
	for _, scheme := range []string{"https", "http"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+b.at+"/"+path+"?"+values.Encode(), nil)
		if err != nil {
			return nil, err
		}
		answer, err := b.client.Do(request)
		if err == nil && answer.StatusCode == http.StatusOK {
			return answer, nil
		}
		if err == nil {
			body, _ := io.ReadAll(answer.Body) // the status is the error
			_ = answer.Body.Close()
			err = fmt.Errorf("%s: %s: %s", request.URL, answer.Status, body)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// list returns the flows that Whisker's page gets, without their times.
func (b whiskerBackend) list(t *testing.T, filters string) ([]string, error) {
	answer, err := b.get(t, "flows", url.Values{"filters": {filters}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var list struct{ Items []whiskerFlow }
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		return nil, err
	}
	return whiskerLines(t, list.Items), nil
}

// stream returns the first flows of the stream of the last ten minutes.
func (b whiskerBackend) stream(t *testing.T, n int) ([]string, error) {
	answer, err := b.get(t, "flows", url.Values{"watch": {"true"}, "startTimeGte": {"-600"}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var got []string
	for lines := bufio.NewScanner(answer.Body); len(got) < n && lines.Scan(); {
		event, isEvent := strings.CutPrefix(lines.Text(), "data: ")
		if !isEvent {
			continue
		}
		var f whiskerFlow
		if err := json.Unmarshal([]byte(event), &f); err != nil {
			return got, err
		}
		got = append(got, whiskerLines(t, []whiskerFlow{f})...)
	}
	slices.Sort(got)
	return got, nil
}

// hints returns the values that a filter offers, sorted.
func (b whiskerBackend) hints(t *testing.T, kind string) (string, error) {
	answer, err := b.get(t, "flows-filter-hints", url.Values{"type": {kind}, "page": {"0"}, "pageSize": {"20"}})
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	var list struct{ Items []struct{ Value string } }
	err = json.NewDecoder(answer.Body).Decode(&list)
	var values []string
	for _, item := range list.Items {
		values = append(values, item.Value)
	}
	slices.Sort(values)
	return fmt.Sprint(values), err
}

type whiskerFlow struct {
	Action, Protocol, Reporter string
	SourceName                 string `json:"source_name"`
	SourceNamespace            string `json:"source_namespace"`
	DestName                   string `json:"dest_name"`
	DestNamespace              string `json:"dest_namespace"`
	DestPort                   int    `json:"dest_port"`
	PacketsIn                  int    `json:"packets_in"`
	PacketsOut                 int    `json:"packets_out"`
	Policies                   struct{ Enforced, Pending []whiskerHit }
}

type whiskerHit struct {
	Kind, Name, Namespace, Action string
	RuleIndex                     int `json:"rule_index"`
	Trigger                       *whiskerHit
}

// whiskerLines are flows without their times, sorted.
func whiskerLines(t *testing.T, list []whiskerFlow) (out []string) {
	t.Helper()
	for _, f := range list {
		if f.DestPort == 9 { // of startPushing
			continue
		}
		if len(f.Policies.Enforced) == 0 || len(f.Policies.Pending) == 0 {
			t.Errorf("the page ends with an error when a reader opens %+v", f)
		}
		var hits []string
		for _, h := range f.Policies.Enforced {
			if h.Kind == "7" { // after v3.31 Calico has no AdminNetworkPolicy
				h.Kind = "AdminNetworkPolicy"
			}
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
	return out
}
