package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probe asks a container how it is, for one life of it: first the startup probe, then the others.
func (c *container) probe(ctx context.Context) {
	if p := c.spec.StartupProbe; p != nil {
		if !c.repeat(ctx, "Startup", p, func(ok bool) (more bool) {
			if !ok {
				c.end()
			}
			return false
		}) {
			return
		}
		c.set(func() { c.started, c.ready = true, c.spec.ReadinessProbe == nil })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p := c.spec.LivenessProbe; p != nil {
			c.repeat(ctx, "Liveness", p, func(ok bool) (more bool) {
				if !ok {
					c.end()
				}
				return ok
			})
		}
	}()
	if p := c.spec.ReadinessProbe; p != nil {
		c.repeat(ctx, "Readiness", p, func(ok bool) (more bool) {
			c.set(func() { c.ready = ok })
			return true
		})
	}
	<-done
}

// set changes what the status is made of.
func (c *container) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	c.w.changed()
}

// end ends this life; the policy decides on another.
func (c *container) end() {
	c.mu.Lock()
	kill := c.kill
	c.mu.Unlock()
	if kill != nil {
		kill()
	}
}

// repeat probes until the context ends, or result wants no more. It calls result when a threshold is reached, and reports the last.
func (c *container) repeat(ctx context.Context, kind string, p *corev1.Probe, result func(ok bool) (more bool)) bool {
	every, limit := time.Duration(max(1, p.PeriodSeconds))*time.Second, time.Duration(max(1, p.TimeoutSeconds))*time.Second
	sleep(ctx, time.Duration(p.InitialDelaySeconds)*time.Second)
	good, bad, was := int32(0), int32(0), ""
	for ; ctx.Err() == nil; sleep(ctx, every) {
		once, cancel := context.WithTimeout(ctx, limit)
		err := c.ask(once, &p.ProbeHandler)
		cancel()
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			good, bad = good+1, 0
		default:
			good, bad = 0, bad+1
			c.w.k.events.Eventf(c.w.object(), corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %v", kind, err)
		}
		now := was
		if good >= max(1, p.SuccessThreshold) {
			now = "good"
		}
		if bad >= max(1, p.FailureThreshold) {
			now = "bad"
		}
		if now != was {
			if was = now; !result(now == "good") {
				return now == "good"
			}
		}
	}
	return false
}

// ask probes once, from the node.
func (c *container) ask(ctx context.Context, p *corev1.ProbeHandler) error {
	switch {
	case p.Exec != nil:
		return c.askProgram(ctx, p.Exec.Command)
	case p.TCPSocket != nil:
		to, err := c.target(p.TCPSocket.Host, p.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
		if err != nil {
			return err
		}
		return conn.Close()
	case p.HTTPGet != nil:
		return c.askHTTP(ctx, p.HTTPGet)
	}
	return nil
}

func (c *container) askProgram(ctx context.Context, command []string) error {
	p, err := c.beside(ctx, command)
	if err != nil {
		return err
	}
	cmd, err := p.Start(func(cmd *exec.Cmd) { prepare(cmd, nil, io.Discard, io.Discard) })
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer stop()
	return cmd.Wait()
}

func (c *container) askHTTP(ctx context.Context, get *corev1.HTTPGetAction) error {
	to, err := c.target(get.Host, get.Port)
	if err != nil {
		return err
	}
	scheme := "http"
	if get.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+to+"/", nil)
	if err != nil {
		return err
	}
	if req.URL, err = req.URL.Parse(get.Path); err != nil {
		return err
	}
	for _, h := range get.HTTPHeaders {
		req.Header.Set(h.Name, h.Value)
	}
	resp, err := probeClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", resp.StatusCode)
	}
	return nil
}

// probeClient connects anew for each probe, and follows no redirects to elsewhere.
var probeClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // as a kubelet's
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// target is where a probe connects to.
func (c *container) target(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		c.w.mu.Lock()
		if len(c.w.address) > 0 {
			host = c.w.address[0]
		}
		c.w.mu.Unlock()
	}
	if port.Type == intstr.Int {
		return net.JoinHostPort(host, strconv.Itoa(int(port.IntVal))), nil
	}
	for _, p := range c.spec.Ports {
		if p.Name == port.StrVal {
			return net.JoinHostPort(host, strconv.Itoa(int(p.ContainerPort))), nil
		}
	}
	return "", fmt.Errorf("no port is called %q", port.StrVal)
}
