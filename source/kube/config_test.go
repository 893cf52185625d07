package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/source/kube/api"
	"github.com/contiv-agent/contiv-agent/source/kube/api/apitest"
)

func writeKubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: here, context: {cluster: c, user: u}}
- {name: there, context: {cluster: d, user: u}}
clusters:
- {name: c, cluster: {server: %q}}
- {name: d, cluster: {server: "https://192.168.16.9:6443"}}
users:
- {name: u, user: {token: abc}}
`, server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigClient(t *testing.T) {
	file := writeKubeconfig(t, "https://192.168.16.1:6443")
	for _, c := range []struct {
		cfg  Config
		want string // host of the client; "" for an error
	}{
		{Config{Kubeconfig: file}, "192.168.16.1:6443"},
		{Config{Kubeconfig: file, Context: "there"}, "192.168.16.9:6443"},
		{Config{Kubeconfig: file, Server: "https://192.168.16.2:6443"}, "192.168.16.2:6443"},
		{Config{Kubeconfig: file, Context: "nowhere"}, ""},
		{Config{Kubeconfig: file + ".missing"}, ""},
	} {
		client, untyped, err := c.cfg.Clients()
		switch {
		case err != nil && c.want != "":
			t.Errorf("%+v: %v", c.cfg, err)
		case err == nil && c.want == "":
			t.Errorf("%+v: no error", c.cfg)
		case err == nil && untyped == nil:
			t.Errorf("%+v: no client for what has no types", c.cfg)
		case err == nil:
			if got := client.(*api.REST).Host(); got != c.want {
				t.Errorf("%+v: host %s, want %s", c.cfg, got, c.want)
			}
		}
		want, _, _ := strings.Cut(c.want, ":")
		if got := c.cfg.Addr(); c.want != "" && got.String() != want || c.want == "" && got.IsValid() {
			t.Errorf("%+v: address %s, want %q", c.cfg, got, want)
		}
		if got := c.cfg.HostPort(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.cfg, got, c.want)
		}
	}
	if got := (&Config{Kubeconfig: writeKubeconfig(t, "https://api.example.org:6443")}).Addr(); got.IsValid() {
		t.Errorf("address %s of a name", got)
	}
	if got := (&Config{Kubeconfig: writeKubeconfig(t, "https://[2001:db8::1]")}).HostPort(); got != "[2001:db8::1]:443" {
		t.Errorf("%q without a port", got)
	}
}

func TestConfigValidate(t *testing.T) {
	for _, cfg := range []Config{
		{Batch: -1}, {Client: apitest.New(), Context: "x"}, {Server: "192.168.16.1:6443"}, {Server: "::"},
	} {
		if cfg.Validate() == nil {
			t.Errorf("%+v: no error", cfg)
		}
		if New(cfg).Run(t.Context(), func(event.Event) { t.Error("emitted") }) == nil {
			t.Errorf("%+v: Run does not refuse it", cfg)
		}
	}
	if err := (&Config{Server: "https://192.168.16.1:6443"}).Validate(); err != nil {
		t.Error(err)
	}
}

// A server beside a service account changes the address alone. The loader is as client-go's: with a server it reads no service account.
func TestConfigServerOfServiceAccount(t *testing.T) {
	const server, token = "https://192.168.16.2:6443", "of a pod"
	inPod := func(server string) (*rest.Config, error) {
		if server != "" {
			return &rest.Config{Host: server}, nil
		}
		return &rest.Config{Host: "https://10.96.0.1:443", BearerToken: token}, nil
	}
	if cfg, err := atServer(server, inPod); err != nil || cfg.Host != server || cfg.BearerToken != token {
		t.Errorf("%v, %v", cfg, err)
	}
	if cfg, err := atServer("", inPod); err != nil || cfg.Host != "https://10.96.0.1:443" {
		t.Errorf("%v, %v", cfg, err)
	}
	nowhere := func(server string) (*rest.Config, error) {
		if server == "" {
			return nil, clientcmd.ErrEmptyConfig
		}
		return &rest.Config{Host: server}, nil
	}
	if cfg, err := atServer(server, nowhere); err != nil || cfg.Host != server {
		t.Errorf("%v, %v", cfg, err)
	}
}
