package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// The node Felix runs on.
const node1 = "node-1"

// stage is what a real Felix needs around it: an etcd, where it finds its configuration and leaves statuses, and a Typha that
// feeds it.
//
//	entries ─▶ typha (the real sync server) ─▶ calico-felix ─ fd 3 ─▶ driver ─▶ VPP
//	statuses ◀─ etcd ◀────────────────────────────┘ ◀─ fd 4 ───┘
type stage struct {
	t       *testing.T
	url     string // etcd's
	store   *clientv3.Client
	typha   *Process
	addr    string           // Felix's Typha
	entries map[string]Entry // published to Typha
	felix   *Process
	starts  int
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, entries: map[string]Entry{}}
	s.etcd()
	s.entries["/calico/v1/Ready"] = Entry{Key: "/calico/v1/Ready", Value: "true"}
	s.serve()
	return s
}

// serve starts a Typha with all entries so far, but not in sync. Felix uses it from its next start on.
func (s *stage) serve() {
	s.t.Helper()
	s.typha = start(s.t, "typha", exec.Command(peer(s.t, "typha")))
	s.addr = "127.0.0.1:" + s.typha.Line()
	s.typha.Send(`{"status":"resync"}`)
	for _, e := range s.entries {
		s.send(e)
	}
}

// etcd starts one with what a Felix insists on: a ClusterInformation that says the datastore is ready.
func (s *stage) etcd() {
	s.t.Helper()
	client, other := freePort(s.t), freePort(s.t)
	s.url = fmt.Sprintf("http://127.0.0.1:%d", client)
	peers := fmt.Sprintf("http://127.0.0.1:%d", other)
	start(s.t, "etcd", exec.Command(peer(s.t, "etcd"), "--data-dir", s.t.TempDir(), "--name", "stage", "--log-level", "error",
		"--listen-client-urls", s.url, "--advertise-client-urls", s.url,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "stage="+peers))
	store, err := clientv3.New(clientv3.Config{Endpoints: []string{s.url}, Logger: zap.NewNop()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = store.Close() })
	s.store = store
	ready := `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default",` +
		`"uid":"00000000-0000-0000-0000-000000000001","creationTimestamp":"2026-01-01T00:00:00Z"},` +
		`"spec":{"clusterGUID":"0123456789abcdef0123456789abcdef","clusterType":"k8s","datastoreReady":true}}`
	s.keep("clusterinformations/default", ready)
}

// keep puts a resource into Felix's datastore.
func (s *stage) keep(resource, value string) {
	s.t.Helper()
	eventually(s.t, "etcd takes a key", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.store.Put(ctx, "/calico/resources/v3/projectcalico.org/"+resource, value)
		return err
	})
}

// put publishes an entry through Typha; the value is text or something that becomes JSON.
func (s *stage) put(key string, value any) {
	s.t.Helper()
	text, is := value.(string)
	if !is {
		raw, err := json.Marshal(value)
		if err != nil {
			s.t.Fatal(err)
		}
		text = string(raw)
	}
	s.entries[key] = Entry{Key: key, Value: text}
	s.send(s.entries[key])
}

// remove deletes an entry through Typha.
func (s *stage) remove(key string) {
	s.t.Helper()
	delete(s.entries, key)
	s.send(Entry{Key: key, Deleted: true})
}

// inSync makes Typha report in-sync.
func (s *stage) inSync() { s.t.Helper(); s.typha.Send(`{"status":"in-sync"}`) }

func (s *stage) send(e Entry) {
	s.t.Helper()
	raw, err := json.Marshal(e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.typha.Send("%s", raw)
}

// start starts the real Felix with a driver.
func (s *stage) start(driver string, env ...string) {
	s.t.Helper()
	s.starts++
	cmd := exec.Command(peer(s.t, "calico-felix"), "-c", filepath.Join(s.t.TempDir(), "none.cfg"))
	cmd.Env = append(os.Environ(),
		"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS="+s.url, "FELIX_DATASTORETYPE=etcdv3", "FELIX_ETCDENDPOINTS="+s.url,
		"FELIX_FELIXHOSTNAME="+node1, "FELIX_TYPHAADDR="+s.addr,
		"FELIX_USEINTERNALDATAPLANEDRIVER=false", "FELIX_DATAPLANEDRIVER="+driver,
		"FELIX_LOGSEVERITYSCREEN=INFO", "FELIX_LOGFILEPATH=none", "FELIX_LOGSEVERITYSYS=none", "FELIX_USAGEREPORTINGENABLED=false",
		"FELIX_ENDPOINTREPORTINGENABLED=true", "FELIX_ENDPOINTREPORTINGDELAYSECS=0.05", "FELIX_ENDPOINTSTATUSPATHPREFIX=none",
		"FELIX_REPORTINGINTERVALSECS=1", "FELIX_ROUTESOURCE=WorkloadIPs")
	cmd.Env = append(cmd.Env, env...)
	s.felix = start(s.t, fmt.Sprint("felix ", s.starts), cmd)
}

// status returns what Felix has written to etcd below its own keys, key → value.
func (s *stage) status() (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out := map[string]string{}
	reply, err := s.store.Get(ctx, "/calico/felix/", clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range reply.Kvs {
		out[strings.TrimPrefix(string(kv.Key), "/calico/felix/")] = string(kv.Value)
	}
	return out, nil
}

// Where Felix leaves statuses, below /calico/felix/.
const (
	processStatus = "v2/no-region/host/" + node1 + "/status"
	podStatus     = "v2/no-region/host/" + node1 + "/workload/k8s/%s/endpoint/eth0"
	hostStatus    = "v1/host/" + node1 + "/endpoint/%s"
)

// reported waits until Felix's datastore has want as the status of an endpoint; "" means none.
func (s *stage) reported(key, want string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("status %q at %s", want, key), func() error {
		if !s.felix.Running() {
			return errors.New("Felix has ended")
		}
		all, err := s.status()
		if err != nil {
			return err
		}
		var got struct{ Status string }
		if raw, is := all[key]; is {
			if err := json.Unmarshal([]byte(raw), &got); err != nil {
				return err
			}
		}
		if got.Status != want {
			return fmt.Errorf("it is %q; there are %v", got.Status, all)
		}
		return nil
	})
}
