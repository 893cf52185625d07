package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// TestRealClientTLS: between our server and the real client only the right ones talk to each other. A server that refuses a
// client says so in its log and serves the next one.
func TestRealClientTLS(t *testing.T) {
	const server, client, uri = "typha-server", "typha-client", "spiffe://cluster/felix"
	dir := t.TempDir()
	ours, theirs := newAuthority(t, dir, "ours"), newAuthority(t, dir, "theirs")
	const hour = time.Hour
	for _, c := range []struct {
		name                 string
		server, client       *authority // who issues the certificates; both sides trust "ours"
		clientCN, clientURI  string
		serverFor, clientFor time.Duration
		wanted               wire.Peer // of the client
		serverCN, serverURI  string    // wanted of the server
		plain, bare          bool      // the client has no TLS, the server has none
		ok                   bool
	}{
		{name: "right common name", wanted: wire.Peer{CN: client}, ok: true},
		{name: "right URI", clientURI: uri, wanted: wire.Peer{URI: uri}, ok: true},
		{name: "wrong name but right URI", clientURI: uri, wanted: wire.Peer{CN: "x", URI: uri}, ok: true},
		{name: "right name but wrong URI", clientURI: uri + "x", wanted: wire.Peer{CN: client, URI: uri}, ok: true},
		{name: "anybody of the authority", ok: true},
		{name: "wrong common name", clientCN: "somebody", wanted: wire.Peer{CN: client}},
		{name: "wrong URI", clientURI: uri + "x", wanted: wire.Peer{URI: uri}},
		{name: "no URI", wanted: wire.Peer{URI: uri}},
		{name: "both wrong", clientCN: "somebody", clientURI: uri + "x", wanted: wire.Peer{CN: client, URI: uri}},
		{name: "client of another authority", client: theirs, wanted: wire.Peer{CN: client}},
		{name: "client expired", clientFor: -hour, wanted: wire.Peer{CN: client}},
		{name: "client without TLS", plain: true},
		{name: "server of another authority", server: theirs, wanted: wire.Peer{CN: client}},
		{name: "server expired", serverFor: -hour, wanted: wire.Peer{CN: client}},
		{name: "server with another name", serverCN: "somebody", wanted: wire.Peer{CN: client}},
		{name: "server with the URI", serverURI: "spiffe://cluster/typha", wanted: wire.Peer{CN: client}, ok: true},
		{name: "server with another name and another URI", serverCN: "somebody", serverURI: "spiffe://cluster/other", wanted: wire.Peer{CN: client}},
		{name: "server without TLS", bare: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			or := func(a, b string) string {
				if a != "" {
					return a
				}
				return b
			}
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
			files := fanout.TLSFiles{CA: ours.file, Client: c.wanted}
			files.Cert, files.Key = c.server.issue(server, "spiffe://cluster/typha", c.serverFor)
			secured, err := files.Config()
			if err != nil {
				t.Fatal(err)
			}
			if c.bare {
				secured = nil
			}
			s, addr := fanoutAt(t, fanout.Config{TLS: secured})
			s.Publish(wire.Batch{Syncer: wire.Felix, Status: wire.InSync, KVs: []wire.KV{wireKV("/calico/v1/config/X", "secret")}})
			serves := func(cert, key, cn string) *realClient {
				return startClient(t, addr, "--cert", cert, "--key", key, "--ca", ours.file, "--server-cn", cn, "--server-uri", c.serverURI)
			}
			cert, key := c.client.issue(or(c.clientCN, client), c.clientURI, c.clientFor)
			var peer *realClient
			if c.plain {
				peer = startClient(t, addr)
			} else {
				peer = serves(cert, key, or(c.serverCN, server))
			}
			if c.ok {
				peer.until(func() bool { return peer.status == "in-sync" })
				if peer.values["/calico/v1/config/X"] != "secret" {
					t.Errorf("heard %v", peer.values)
				}
				return
			}
			if err := peer.Wait(); err == nil {
				t.Error("it was served")
			}
			if strings.Contains(peer.Log(), "secret") || strings.Contains(peer.Log(), "in-sync") {
				t.Error("it received a message")
			}
			if c.server == ours && c.serverFor > 0 && c.serverCN == "" && !c.bare {
				cert, key := ours.issue(client, uri, hour)
				good := serves(cert, key, server)
				good.until(func() bool { return good.status == "in-sync" })
			}
		})
	}
}
