package descriptor

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

func TestClientNames(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil,
		"Socket clients\n                Name  Fildesc\n        contiv-agent       31\n             doctor       32\n": {"contiv-agent", "doctor"},
		"Shared memory clients\n                Name      PID   Queue Length           Queue VA Health\n" +
			"                vat2      100              0 0x000000013000a0c0 OK\n\n2 messages with missing clients\n" +
			"Socket clients\n                Name  Fildesc\n        contiv-agent       31\n": {"vat2", "contiv-agent"},
	} {
		got, err := ClientNames(vpp.Reply{Msg: &vlib.CliInbandReply{Reply: text}})
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
	if _, err := ClientNames(vpp.Reply{Err: errors.New("gone")}); err == nil {
		t.Error("no answer is no error")
	}
}
