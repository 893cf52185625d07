package sbom

import (
	"runtime/debug"
	"testing"
)

// A program without a list of modules reports that, and does not print an empty bill.
func TestSBOMWithoutModules(t *testing.T) {
	if b, err := newBOM(&debug.BuildInfo{}, "v1"); err == nil {
		t.Errorf("%+v", b)
	}
}
