package interop

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/calico/datastore/encode"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// realTypha is the real Typha's server in a separate process.
type realTypha struct {
	*Process
	port string
}

func startTypha(t *testing.T, args ...string) *realTypha {
	t.Helper()
	p := start(t, "typha", exec.Command(peer(t, "typha"), args...))
	r := &realTypha{p, p.Line()}
	r.Send(`{"status":"resync"}`)
	return r
}

func (r *realTypha) addr() string { return "127.0.0.1:" + r.port }

// put publishes an entry; "" deletes it.
func (r *realTypha) put(key, value string) {
	r.t.Helper()
	line := map[string]any{"key": key, "value": value}
	if value == "" {
		line = map[string]any{"key": key, "deleted": true}
	}
	raw, err := json.Marshal(line)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Send("%s", raw)
}

// received is what our client passes on: batches, with the values after them.
type received struct {
	t       *testing.T
	batches chan wire.Batch
	lost    chan error
	values  map[string]string
	steps   []string // of the last batches: key=value, or key=
	synced  int
}

func follow(t *testing.T, cfg typha.Config) *received {
	t.Helper()
	f := &received{t: t, batches: make(chan wire.Batch, 10_000), lost: make(chan error, 10_000), values: map[string]string{}}
	cfg.PauseFrom, cfg.PauseTo = 20*time.Millisecond, 200*time.Millisecond
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- typha.NewClient(cfg, wire.Felix, false).Follow(ctx, func(b wire.Batch) { f.batches <- b }, func(err error) { f.lost <- err })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return f
}

// until takes batches until done.
func (f *received) until(done func() bool) {
	f.t.Helper()
	f.steps = nil
	for !done() {
		select {
		case b := <-f.batches:
			if b.Status == wire.InSync {
				f.synced++
			}
			for _, kv := range b.KVs {
				f.steps = append(f.steps, kv.Key+"="+string(kv.Value))
				if f.values[kv.Key] = string(kv.Value); kv.Deleted() {
					delete(f.values, kv.Key)
				}
			}
		case <-time.After(patience):
			f.t.Fatalf("waited in vain; has %d keys", len(f.values))
		}
	}
}

func param(n int) (key, value string) {
	return fmt.Sprintf("/calico/v1/config/Param%d", n), fmt.Sprintf("value %d", n)
}

// Our client of a real Typha has what Typha has: a snapshot, changes, deletes; and of the snapshot of one that was restarted
// with other entries nothing but what differs.
func TestOurClientOfARealTypha(t *testing.T) {
	for name, plain := range map[string]bool{"snappy": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			port := fmt.Sprint(freePort(t))
			server := startTypha(t, "--port", port)
			want := map[string]string{}
			for n := range 3000 {
				key, value := param(n)
				server.put(key, value)
				want[key] = value
			}
			server.Send(`{"status":"in-sync"}`)
			f := follow(t, typha.Config{Addrs: []string{server.addr()}, Plain: plain})
			f.until(func() bool { return f.synced > 0 })
			if d := cmp.Diff(want, f.values); d != "" {
				t.Fatalf("snapshot (-Typha +ours):\n%s", d)
			}
			one, _ := param(1)
			two, _ := param(2)
			server.put(one, "new")
			server.put(two, "")
			f.until(func() bool { _, has := f.values[two]; return !has && f.values[one] == "new" })

			server.Kill()
			again := startTypha(t, "--port", port)
			for n := range 3000 {
				key, value := param(n)
				switch n {
				case 1:
					value = "new"
				case 2, 3: // 2 is already deleted, 3 is deleted without a connection
					continue
				case 4:
					value = "changed"
				}
				again.put(key, value)
			}
			again.put("/calico/v1/config/More", "more")
			again.Send(`{"status":"in-sync"}`)
			f.synced = 0
			f.until(func() bool { return f.synced > 0 })
			three, _ := param(3)
			four, _ := param(4)
			if d := cmp.Diff([]string{"/calico/v1/config/More=more", three + "=", four + "=changed"}, slices.Sorted(slices.Values(f.steps))); d != "" {
				t.Errorf("steps after the restart (-want +have):\n%s", d)
			}
		})
	}
}

// authority makes certificates.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
	n    int64
}

func newAuthority(t testing.TB, dir, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: dir, file: filepath.Join(dir, name+".pem")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.key = key
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write(a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) write(file, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// issue makes a certificate and its key, in two files.
func (a *authority) issue(cn, uri string, valid time.Duration) (cert, key string) {
	a.t.Helper()
	a.n++
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.n + 1), Subject: pkix.Name{CommonName: cn},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(valid), KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if u, err := url.Parse(uri); err == nil && uri != "" {
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	text, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	base := strings.TrimSuffix(a.file, ".pem") + fmt.Sprint(a.n)
	a.write(base+".crt", "CERTIFICATE", der)
	a.write(base+".key", "EC PRIVATE KEY", text)
	return base + ".crt", base + ".key"
}

// TLS between our client and the real server: only the right ones talk to each other.
func TestOurClientTLS(t *testing.T) {
	const server, client, uri = "typha-server", "typha-client", "spiffe://cluster/typha"
	dir := t.TempDir()
	ours, theirs := newAuthority(t, dir, "ours"), newAuthority(t, dir, "theirs")
	const hour = time.Hour
	for _, c := range []struct {
		name                 string
		server, client       *authority // who issues the certificates; both sides trust "ours"
		serverURI            string
		serverFor, clientFor time.Duration
		clientCN             string
		clientURI, wantedURI string // the client's, and what the server wants
		wanted               wire.Peer
		plain, bare          bool // the client has no TLS, the server has none
		ok                   bool
	}{
		{name: "right common name", wanted: wire.Peer{CN: server}, ok: true},
		{name: "right URI", serverURI: uri, wanted: wire.Peer{URI: uri}, ok: true},
		{name: "wrong name but right URI", serverURI: uri, wanted: wire.Peer{CN: "x", URI: uri}, ok: true},
		{name: "wrong common name", wanted: wire.Peer{CN: "somebody"}},
		{name: "wrong URI", serverURI: "spiffe://cluster/other", wanted: wire.Peer{URI: uri}},
		{name: "no URI", wanted: wire.Peer{URI: uri}},
		{name: "server of another authority", server: theirs, wanted: wire.Peer{CN: server}},
		{name: "client of another authority", client: theirs, wanted: wire.Peer{CN: server}},
		{name: "server expired", serverFor: -hour, wanted: wire.Peer{CN: server}},
		{name: "client expired", clientFor: -hour, wanted: wire.Peer{CN: server}},
		{name: "client with another name", clientCN: "somebody", wanted: wire.Peer{CN: server}},
		{name: "client with another name but the URI", clientCN: "somebody", clientURI: uri + "/client", wantedURI: uri + "/client", wanted: wire.Peer{CN: server}, ok: true},
		{name: "client with another name and another URI", clientCN: "somebody", clientURI: uri, wantedURI: uri + "/client", wanted: wire.Peer{CN: server}},
		{name: "no TLS", plain: true},
		{name: "server without TLS", bare: true, wanted: wire.Peer{CN: server}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, a := range []**authority{&c.server, &c.client} {
				if *a == nil {
					*a = ours
				}
			}
			for _, d := range []*time.Duration{&c.serverFor, &c.clientFor} {
				if *d == 0 {
					*d = hour
				}
			}
			if c.clientCN == "" {
				c.clientCN = client
			}
			cert, key := c.server.issue(server, c.serverURI, c.serverFor)
			secured := []string{"--cert", cert, "--key", key, "--ca", ours.file, "--client-cn", client, "--client-uri", c.wantedURI}
			if c.bare {
				secured = nil
			}
			s := startTypha(t, secured...)
			k, v := param(1)
			s.put(k, v)
			s.Send(`{"status":"in-sync"}`)
			cfg := typha.Config{Addrs: []string{s.addr()}}
			if !c.plain {
				cfg.TLS = typha.TLS{CA: ours.file, Server: c.wanted}
				cfg.TLS.Cert, cfg.TLS.Key = c.client.issue(c.clientCN, c.clientURI, c.clientFor)
			}
			f := follow(t, cfg)
			if c.ok {
				f.until(func() bool { return f.values[k] == v })
				return
			}
			for range 3 {
				if err := <-f.lost; err == nil {
					t.Fatal("in sync")
				} else {
					t.Log(err)
				}
			}
			if len(f.batches) > 0 {
				t.Errorf("got %+v", <-f.batches)
			}
		})
	}
}

// guestbook publishes the example to a real Typha, as Calico's converters write it.
func (r *realTypha) guestbook() {
	r.t.Helper()
	send := func(list []calico.KV) {
		for _, kv := range list {
			if !strings.HasPrefix(kv.Key, datastore.ServiceCIDRPrefix) { // no key of Calico's
				r.put(kv.Key, string(kv.Value))
			}
		}
	}
	send(encode.Builtin())
	err := manifest.New(manifest.Config{Paths: []string{"../examples/guestbook"}, Keys: true}).Run(r.t.Context(), func(e event.Event) {
		if u, ok := e.(*event.Update); ok {
			for _, c := range u.Changes {
				send(c.Keys)
			}
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Send(`{"status":"in-sync"}`)
}

// A node whose agent follows a real Typha ends with the same services and policies as one whose agent reads the manifests.
func TestAgentFollowsARealTypha(t *testing.T) {
	server := startTypha(t)
	server.guestbook()
	said := func(args ...string) string {
		t.Helper()
		args = append([]string{"run", "--sim", "--node", "node-1", "--once", "--service-cidr", "10.96.0.0/16", "--status-socket", "", "--listen", ""}, args...)
		out, err := exec.Command(product(t), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if lines := regexp.MustCompile(`(?m)^node node-1: .*|^ *(CONFIGURED|SKIPPED|FAILED).*`).FindAllString(string(out), -1); len(lines) > 0 {
			// but for how many messages it took, of which a transaction before may have sent some, and the time
			return regexp.MustCompile(`(?m)[0-9]+ messages to VPP(, [0-9.]+[mµ]?s)?(, on the simulated VPP)?$`).ReplaceAllString(strings.Join(lines, "\n"), "")
		}
		t.Fatalf("no word of what was done:\n%s", out)
		return ""
	}
	want := said("--manifests", "../examples/guestbook")
	have := said("--source", "typha", "--typha-addr", server.addr())
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("-manifests +Typha:\n%s", d)
	}
	between := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	start(t, "fanout", exec.Command(product(t), "fanout", "--upstream", server.addr(), "--listen", between, "--metrics", ""))
	if d := cmp.Diff(want, said("--source", "typha", "--typha-addr", between)); d != "" {
		t.Errorf("-manifests +our fan-out server behind Typha:\n%s", d)
	}
}

// Calico accepts the objects of all scenarios and writes them again unchanged: its validation drops nothing, and no byte is
// lost in its types.
func TestStoriesThroughARealTypha(t *testing.T) {
	stories, err := filepath.Glob("../test/scenario/testdata/*.txtar")
	if err != nil || len(stories) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	server := startTypha(t)
	server.Send(`{"status":"in-sync"}`)
	f := follow(t, typha.Config{Addrs: []string{server.addr()}})
	f.until(func() bool { return f.synced > 0 })
	want, count := map[string]string{}, 0
	put := func(list []calico.KV) {
		for _, kv := range list {
			if strings.HasPrefix(kv.Key, datastore.ServiceCIDRPrefix) {
				continue
			}
			server.put(kv.Key, string(kv.Value))
			want[kv.Key] = string(kv.Value)
		}
	}
	check := func(story string) {
		t.Helper()
		const mark = "/calico/v1/config/Story"
		server.put(mark, story)
		f.until(func() bool { return f.values[mark] == story })
		for key, value := range want {
			if have, ok := f.values[key]; !ok {
				t.Errorf("%s: Calico drops\n%s\n  %s", story, key, value)
			} else if have != value {
				t.Errorf("%s: Calico writes\n%s\n  %s\nwhere we wrote\n  %s", story, key, have, value)
			}
		}
		count += len(want)
		clear(want)
	}
	put(encode.Builtin())
	check("no story")
	for _, file := range stories {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		parts := regexp.MustCompile(`(?m)^-- (\S+\.yaml) --\n`).FindAllSubmatchIndex(text, -1)
		for _, part := range parts {
			body := text[part[1]:]
			if end := regexp.MustCompile(`(?m)^-- \S+ --$`).FindIndex(body); end != nil {
				body = body[:end[0]]
			}
			name := strings.ReplaceAll(string(text[part[2]:part[3]]), "/", "_")
			if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err = manifest.New(manifest.Config{Paths: []string{dir, "../test/scenario/testdata/shared"}, Keys: true}).Run(t.Context(), func(e event.Event) {
			if u, ok := e.(*event.Update); ok {
				for _, c := range u.Changes {
					put(c.Keys)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		check(filepath.Base(file))
	}
	if count < 1500 {
		t.Errorf("only %d keys", count)
	}
}
