package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// FetchStatus fetches the status of the agent at a unix socket, with past transactions if history is true.
func FetchStatus(ctx context.Context, socket string, history bool) (*status.Status, error) {
	st := &status.Status{}
	return st, fetch(ctx, socket, "/status?history="+strconv.FormatBool(history), st)
}

// FetchPolicy fetches the policies of a pod from the agent at a unix socket.
func FetchPolicy(ctx context.Context, socket string, pod model.PodID) (*policy.Description, error) {
	d := &policy.Description{}
	return d, fetch(ctx, socket, "/policy/"+url.PathEscape(pod.Namespace)+"/"+url.PathEscape(pod.Name), d)
}

// FetchPlan fetches, from the agent at a unix socket, the changes that a resync would make in VPP. It only reads VPP. With
// sessions it also counts the NAT sessions that the changes would cut, which stops VPP's forwarding while it counts.
func FetchPlan(ctx context.Context, socket string, sessions bool) (*vppagent.Plan, error) {
	plan := &vppagent.Plan{}
	return plan, fetch(ctx, socket, "/plan?sessions="+strconv.FormatBool(sessions), plan)
}

// FetchReport fetches the report of a proof from the agent at a unix socket: does its VPP do what its objects mean?
func FetchReport(ctx context.Context, socket string) (*verify.Report, error) {
	report := &verify.Report{}
	return report, fetch(ctx, socket, "/verify", report)
}

// FetchLogLevel fetches the log level of the agent at a unix socket: "INFO".
func FetchLogLevel(ctx context.Context, socket string) (string, error) {
	var l logLevel
	err := fetch(ctx, socket, "/loglevel", &l)
	return l.Level, err
}

// SetLogLevel sets the log level of the agent at a unix socket, until its end or the next change.
func SetLogLevel(ctx context.Context, socket, level string) error {
	body, err := json.Marshal(logLevel{level})
	if err != nil {
		return fmt.Errorf("log level: %w", err)
	}
	return request(ctx, socket, http.MethodPut, "/loglevel", bytes.NewReader(body), &logLevel{})
}

// fetch gets a JSON answer from the agent at a unix socket.
func fetch(ctx context.Context, socket, path string, into any) error {
	return request(ctx, socket, http.MethodGet, path, nil, into)
}

// request is fetch with any method and a body. The answer is not JSON if it is for an io.Writer.
func request(ctx context.Context, socket, method, path string, body io.Reader, into any) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://contiv-agent"+path, body)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no agent answers at %s: %w", socket, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var why struct{ Error string }
		if err := json.NewDecoder(resp.Body).Decode(&why); err != nil || why.Error == "" {
			why.Error = resp.Status
		}
		return fmt.Errorf("agent at %s: %s", socket, why.Error)
	}
	if w, raw := into.(io.Writer); raw {
		if _, err := io.Copy(w, resp.Body); err != nil {
			return fmt.Errorf("answer of the agent at %s: %w", socket, err)
		}
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("answer of the agent at %s: %w", socket, err)
	}
	return nil
}
