package flags

import (
	"strings"
	"testing"
)

func TestGRPCFlags(t *testing.T) {
	for want, f := range map[string]GRPC{
		"need each other":            {tcp: "127.0.0.1:0", cert: "x"},
		"need --grpc-listen":         {unix: "x", insecure: true},
		"conflicts with --grpc-cert": {tcp: "0.0.0.0:0", insecure: true, cert: "x", key: "x", ca: "x"},
		"must be a loopback address": {tcp: "0.0.0.0:9111"},
		"certificate: open x":        {tcp: "0.0.0.0:9111", cert: "x", key: "x", ca: "x"},
	} {
		if _, err := f.Source(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
	if sources, err := (&GRPC{}).Source(nil); err != nil || len(sources) != 0 {
		t.Errorf("not asked for: %v, %v", sources, err)
	}
}
