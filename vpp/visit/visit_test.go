package visit_test

import (
	"context"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/visit"
)

func TestNoVPP(t *testing.T) {
	socket := t.TempDir() + "/api.sock"
	conn, _, err := visit.Open(t.Context(), vpp.Config{Socket: socket, ClientName: "visitor", Needs: []api.Message{&acl.ACLDump{}}})
	if conn != nil || err == nil || !strings.HasPrefix(err.Error(), "connect to vpp: ") || !strings.Contains(err.Error(), socket) {
		t.Errorf("got %v, %v", conn, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := visit.Open(ctx, vpp.Config{Socket: socket, ClientName: "visitor"}); err == nil {
		t.Error("an ended context connects")
	}
}
