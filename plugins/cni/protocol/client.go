package protocol

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// The paths of the calls, all by POST. The body of Check is a CheckRequest, that of Collect a CollectRequest, of Status it is empty, and
// otherwise it is a Request. An answer with status 200 is a Result (Add) or empty. Any other answer is a Failure.
const (
	Prefix      = "/cni/"
	PathAdd     = Prefix + "add"
	PathDelete  = Prefix + "delete"
	PathCheck   = Prefix + "check"
	PathStatus  = Prefix + "status"
	PathCollect = Prefix + "collect"
)

// CheckRequest is a CHECK with the result of the ADD.
type CheckRequest struct {
	Request
	Previous *Result `json:"previous,omitempty"`
}

// CollectRequest is a GC: the attachments that still exist.
type CollectRequest struct {
	Valid []Attachment `json:"valid"`
}

// Failure is the body of an answer that is not 200.
type Failure struct {
	Error *Error `json:"error"`
}

var (
	// ErrNoAgent is wrapped by errors of calls that no agent received: nothing listens on the socket.
	ErrNoAgent = errors.New("no agent listens")
	// ErrNoAnswer is wrapped by errors of calls that an agent may have carried out, and that it did not answer.
	ErrNoAnswer = errors.New("the agent did not answer")
)

// The paths of an agent that runs as root without flags: its socket, and the folder for DELs that find no agent.
const (
	DefaultSocket = "/run/contiv-agent/agent.sock"
	DefaultSpool  = "/var/lib/contiv-agent/cni"
)

// maxAnswer bounds the size of an answer.
const maxAnswer = 1 << 20

// Client calls an agent.
type Client struct {
	Socket string // path of the agent's unix socket
	// Dial connects to the agent; nil: by Socket.
	Dial func(context.Context) (net.Conn, error)
}

// Add makes an interface of a container.
func (c *Client) Add(ctx context.Context, r Request) (*Result, error) {
	out := &Result{}
	if err := c.call(ctx, PathAdd, r, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Delete removes an interface of a container.
func (c *Client) Delete(ctx context.Context, r Request) error { return c.call(ctx, PathDelete, r, nil) }

// Check compares an interface of a container with the result of its ADD.
func (c *Client) Check(ctx context.Context, r Request, previous *Result) error {
	return c.call(ctx, PathCheck, CheckRequest{r, previous}, nil)
}

// Status returns why the agent cannot serve an ADD; nil: it can.
func (c *Client) Status(ctx context.Context) error { return c.call(ctx, PathStatus, nil, nil) }

// Collect removes everything that belongs to none of the valid attachments.
func (c *Client) Collect(ctx context.Context, valid []Attachment) error {
	return c.call(ctx, PathCollect, CollectRequest{valid}, nil)
}

// callError is an *Error with its cause.
type callError struct{ code, cause error }

func (e *callError) Error() string { return e.code.Error() }

// Unwrap returns the *Error and its cause.
func (e *callError) Unwrap() []error { return []error{e.code, e.cause} }

// call posts in and decodes the answer into out; nil: none.
func (c *Client) call(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return Errorf(CodeInternal, "cni request: %v", err)
	}
	dial := c.Dial
	if dial == nil {
		dial = func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket) }
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w at %s: %w", ErrNoAgent, c.Socket, err)
		}
		return conn, nil
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://contiv-agent"+path, bytes.NewReader(body))
	if err != nil {
		return Errorf(CodeInternal, "cni request: %v", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		if !errors.Is(err, ErrNoAgent) {
			err = fmt.Errorf("%w: %w", ErrNoAnswer, err)
		}
		return &callError{Errorf(CodeTryAgainLater, "contiv-agent: %v", err), err}
	}
	defer resp.Body.Close()
	return decode(resp, out)
}

// decode reads an answer.
func decode(resp *http.Response, out any) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &callError{Errorf(CodeTryAgainLater, "the answer of contiv-agent ended early: %v", err), fmt.Errorf("%w: %w", ErrNoAnswer, err)}
	}
	if resp.StatusCode != http.StatusOK {
		var f Failure
		if err := json.Unmarshal(text, &f); err != nil || f.Error == nil || f.Error.Code == 0 {
			return Errorf(CodeTryAgainLater, "contiv-agent serves no pods: its answer is %s", resp.Status)
		}
		return f.Error
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return Errorf(CodeDecoding, "answer of contiv-agent: %v", err)
	}
	return nil
}
