package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// Limits of streams, as a kubelet's.
const (
	idleLimit   = 4 * time.Hour
	streamLimit = 30 * time.Second
)

// serve listens for the API server, which alone has a certificate, until stop is called.
func (k *Kubelet) serve() (stop func(), err error) {
	cert, err := tls.LoadX509KeyPair(k.cfg.Cert, k.cfg.Key)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(k.cfg.ClientCA)
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(text) {
		return nil, errors.New(k.cfg.ClientCA + ": no certificate")
	}
	l, err := net.Listen("tcp", net.JoinHostPort(k.cfg.Address, strconv.Itoa(Port)))
	if err != nil {
		return nil, err
	}
	// The streams need HTTP/1.1.
	secure := tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients})
	server := &http.Server{Handler: k.routes(), ReadHeaderTimeout: streamLimit}
	go func() { _ = server.Serve(secure) }() // until it is closed
	return func() { _ = server.Close() }, nil
}

// routes are those paths of a kubelet that kubectl needs.
func (k *Kubelet) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	mux.HandleFunc("/exec/{namespace}/{pod}/{uid}/{container}", k.serveExec)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.servePortForward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", k.servePortForward)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	mux.HandleFunc("/attach/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "attach: this kubelet has exec, logs and port-forward only", http.StatusNotImplemented)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	return mux
}

func (k *Kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	pod, err := k.find(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, pod, r.PathValue("pod"), r.PathValue("uid"), r.PathValue("container"), r.URL.Query()["command"], options,
		idleLimit, streamLimit, remotecommand.SupportedStreamingProtocols)
}

func (k *Kubelet) servePortForward(w http.ResponseWriter, r *http.Request) {
	pod, err := k.find(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, pod, r.PathValue("pod"), r.PathValue("uid"), options, idleLimit, streamLimit, portforward.SupportedProtocols)
}

func (k *Kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	worker, err := k.find(r.PathValue("namespace"), r.PathValue("pod"), "")
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	c := worker.container(r.PathValue("container"))
	if c == nil {
		http.Error(w, "no such container", http.StatusNotFound)
		return
	}
	options, err := readLogOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	j := c.logs
	if r.URL.Query().Get("previous") == "true" {
		j = c.before
	}
	c.mu.Unlock()
	if j == nil {
		http.Error(w, fmt.Sprintf("previous terminated container %q in pod %q not found", c.spec.Name, worker.name), http.StatusBadRequest)
		return
	}
	flush := func() {}
	if f, ok := w.(http.Flusher); ok {
		flush = f.Flush
	}
	if err := j.copyTo(r.Context(), w, flush, options); err != nil && !errors.Is(err, context.Canceled) {
		k.log.Debug("logs", "err", err) // the client has gone
	}
}

func readLogOptions(q url.Values) (o logOptions, err error) {
	number := func(name string) *int64 {
		text := q.Get(name)
		if text == "" {
			return nil
		}
		n, e := strconv.ParseInt(text, 10, 64)
		if e != nil || n < 0 {
			err = errors.Join(err, fmt.Errorf("%s: %q is not a number", name, text))
		}
		return &n
	}
	o.tail, o.limit = number("tailLines"), number("limitBytes")
	if s := number("sinceSeconds"); s != nil {
		o.since = time.Now().Add(-time.Duration(*s) * time.Second)
	}
	if text := q.Get("sinceTime"); text != "" {
		t, e := time.Parse(time.RFC3339, text)
		o.since, err = t, errors.Join(err, e)
	}
	o.timestamps, o.follow = q.Get("timestamps") == "true", q.Get("follow") == "true"
	switch q.Get("stream") {
	case "Stdout":
		o.stream = "stdout"
	case "Stderr":
		o.stream = "stderr"
	}
	return o, err
}
