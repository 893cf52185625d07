package etcd

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	good := Config{Endpoints: []string{"10.0.0.1:2379", "https://etcd.example:2379", "http://[::1]:2379"}, Label: "node-1", Username: "u", Password: "p", StatusTTL: minTTL}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no endpoints":     {func(c *Config) { c.Endpoints = nil }, "at least"},
		"no port":          {func(c *Config) { c.Endpoints = []string{"10.0.0.1"} }, "endpoint 10.0.0.1: "},
		"other scheme":     {func(c *Config) { c.Endpoints = []string{"ftp://10.0.0.1:1"} }, "must be host:port"},
		"path":             {func(c *Config) { c.Endpoints = []string{"http://10.0.0.1:1/x"} }, "must be host:port"},
		"plaintext in TLS": {func(c *Config) { c.TLS = &tls.Config{} }, "endpoint http://[::1]:2379: http is plaintext"},
		"no label":         {func(c *Config) { c.Label = "" }, "label"},
		"label of parts":   {func(c *Config) { c.Label = "a/b" }, "label"},
		"no user":          {func(c *Config) { c.Username = "" }, "need each other"},
		"no password":      {func(c *Config) { c.Password = "" }, "need each other"},
		"waits for ever":   {func(c *Config) { c.StartWait = -1 }, "must not be negative"},
		"short lease":      {func(c *Config) { c.StatusTTL = time.Second }, "must be 5s at least"},
	} {
		c := good
		tc.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestRoot(t *testing.T) {
	for prefix, want := range map[string]string{"": "/vnf-agent/n/", "/vnf-agent/": "/vnf-agent/n/", "/lab": "/lab/n/", "/": "/n/", "lab/x//": "lab/x/n/"} {
		if c := (Config{Prefix: prefix, Label: "n"}); c.root() != want {
			t.Errorf("%q: %q, want %q", prefix, c.root(), want)
		}
	}
}
