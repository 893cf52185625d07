package hubble

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/proto/hubble/flow"
	"github.com/contiv-agent/contiv-agent/test/port"
)

// uiMessage is what the page and the backend of Hubble UI exchange (its customprotocol.proto, in JSON).
type uiMessage struct {
	Meta struct {
		ChannelID string `json:"channel_id,omitempty"`
		RouteName string `json:"route_name,omitempty"`
		IsError   bool   `json:"is_error,omitempty"`
	} `json:"meta"`
	Body struct {
		Content []byte `json:"content,omitempty"`
	} `json:"body"`
}

// Event types and field numbers of Hubble UI's ui.proto.
const (
	uiServices, uiLinks, uiFlows             = 3, 4, 5
	uiBlacklist, uiWhitelist                 = 2, 3 // of GetEventsRequest
	uiEvents                                 = 3    // of GetEventsResponse
	uiServiceState, uiLinkState, uiFlowsList = 5, 6, 7
)

// hubbleUI shows flows by the backend of Hubble UI at a Relay: CONTIV_HUBBLE_UI is its path, as no module of the proxy has it.
func hubbleUI(t *testing.T, relay string) {
	program := os.Getenv("CONTIV_HUBBLE_UI")
	if program == "" {
		t.Skip("CONTIV_HUBBLE_UI is not set; point it at the backend of Hubble UI")
	}
	cluster := httptest.NewServer(http.HandlerFunc(namespaces))
	defer cluster.Close()
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".kube"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}]}", cluster.URL)
	if err := os.WriteFile(filepath.Join(home, ".kube", "config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := port.Free(t)
	cmd := exec.CommandContext(t.Context(), program)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Env = append(os.Environ(), "HOME="+home, "FLOWS_API_ADDR="+relay, fmt.Sprintf("EVENTS_SERVER_PORT=%d", listen))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it may have ended, which the checks below report
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("hubble-ui:\n%s", &log)
		}
	}()

	var request []byte // GetEventsRequest, for the namespace prod as the page asks
	for _, kind := range []uint64{uiServices, uiLinks, uiFlows} {
		request = protowire.AppendVarint(protowire.AppendTag(request, 1, protowire.VarintType), kind)
	}
	for number, filters := range map[protowire.Number][]*flow.FlowFilter{
		uiBlacklist: {
			{SourceLabel: []string{"reserved:unknown", "reserved:host", "k8s:k8s-app=kube-dns", "reserved:remote-node", "k8s:app=prometheus"}},
			{DestinationLabel: []string{"reserved:unknown", "reserved:host", "reserved:remote-node", "k8s:app=prometheus"}},
			{DestinationLabel: []string{"k8s:k8s-app=kube-dns"}, DestinationPort: []string{"53"}},
			{SourceFqdn: []string{"*.cluster.local*"}},
			{DestinationFqdn: []string{"*.cluster.local*"}},
		},
		uiWhitelist: {{SourcePod: []string{"prod/"}, Reply: []bool{false}}, {DestinationPod: []string{"prod/"}, Reply: []bool{false}}},
	} {
		for _, of := range filters {
			filter, err := proto.Marshal(of)
			if err != nil {
				t.Fatal(err)
			}
			request = protowire.AppendBytes(protowire.AppendTag(request, number, protowire.BytesType), protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), filter))
		}
	}
	var m uiMessage
	m.Meta.RouteName, m.Body.Content = "service-map-stream", request
	seen := map[string]bool{}
	want := []string{"flow node-1 prod/client guard", "flow node-2 prod/far guard", "service client", "service far", "link 53 DROPPED"}
	url := fmt.Sprintf("http://127.0.0.1:%d/api/", listen)
	complete := func() bool { return !slices.ContainsFunc(want, func(w string) bool { return !seen[w] }) }
	var failed error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && !complete(); time.Sleep(200 * time.Millisecond) {
		answer, err := uiPoll(t, url, m)
		if failed = err; err != nil {
			continue // it is starting
		}
		m.Meta.ChannelID, m.Body.Content = answer.Meta.ChannelID, nil
		uiSeen(t, answer.Body.Content, seen)
	}
	if !complete() {
		t.Fatalf("Hubble UI shows %v, want %q; %v", seen, want, failed)
	}
	for what := range seen {
		if strings.Contains(what, " shop/") {
			t.Errorf("%s is not in the namespace that was asked for", what)
		}
	}
}

// namespaces is as much of an API server as Hubble UI asks: the list of namespaces, and a watch in which nothing happens.
func namespaces(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	fmt.Fprint(w, `{"kind": "NamespaceList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "prod", "uid": "u"}, "status": {"phase": "Active"}}]}`)
}

func uiPoll(t *testing.T, url string, m uiMessage) (answer uiMessage, err error) {
	body, err := json.Marshal(m)
	if err != nil {
		return answer, err
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+m.Meta.RouteName, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(response.Body); err != nil {
		return answer, err
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Meta.IsError {
		return answer, fmt.Errorf("%s: %w: %s", response.Status, err, body)
	}
	return answer, nil
}

// uiSeen notes what the events of a GetEventsResponse show.
func uiSeen(t *testing.T, response []byte, seen map[string]bool) {
	t.Helper()
	for _, event := range uiFields(t, response, uiEvents) {
		for _, list := range uiFields(t, event, uiFlowsList) {
			for _, b := range uiFields(t, list, 1) {
				f := &flow.Flow{}
				if err := proto.Unmarshal(b, f); err != nil {
					t.Fatal(err)
				}
				by := ""
				if denied := f.GetEgressDeniedBy(); len(denied) > 0 {
					by = denied[0].GetName()
				}
				seen[fmt.Sprintf("flow %s %s/%s %s", f.GetNodeName(), f.GetSource().GetNamespace(), f.GetSource().GetPodName(), by)] = true
			}
		}
		for _, state := range uiFields(t, event, uiServiceState) {
			for _, service := range uiFields(t, state, 1) {
				for _, name := range uiFields(t, service, 2) {
					seen["service "+string(name)] = true
				}
			}
		}
		for _, state := range uiFields(t, event, uiLinkState) {
			for _, link := range uiFields(t, state, 1) {
				numbers := uiNumbers(t, link)
				seen[fmt.Sprintf("link %d %s", numbers[4], flow.Verdict(numbers[6]))] = true
			}
		}
	}
}

// uiFields are the values of a field of bytes.
func uiFields(t *testing.T, message []byte, field protowire.Number) (out [][]byte) {
	t.Helper()
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
		if number == field && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			out = append(out, value)
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
	}
	return out
}

// uiNumbers are the fields that are numbers.
func uiNumbers(t *testing.T, message []byte) map[protowire.Number]uint64 {
	t.Helper()
	out := map[protowire.Number]uint64{}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
		if kind == protowire.VarintType {
			out[number], _ = protowire.ConsumeVarint(message)
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
	}
	return out
}
