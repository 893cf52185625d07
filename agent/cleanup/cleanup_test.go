package cleanup

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// TestCleanupWithoutVPP: without VPP, cleanup returns an error when its context ends.
func TestCleanupWithoutVPP(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := New(ctx, Config{Socket: filepath.Join(t.TempDir(), "none.sock")})
	if err == nil || !strings.Contains(err.Error(), "vpp is not connected") {
		t.Error(err)
	}
}
