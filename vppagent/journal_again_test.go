package vppagent_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/test/poll"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// A journal that could not be written is written when it can be, without another transaction: otherwise the next agent would not know the objects without a tag.
func TestJournalIsWrittenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone", "journal")
	var ahead atomic.Int64
	l := newLab(t, vppagent.Config{})
	agent := vppagent.New(vppagent.Config{Caller: l.conn, Journal: path, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	values := kv.Values{}
	values.Put(&cnat.SnatPolicy{Kind: cnat.SnatPolicy_KUBERNETES, Ipv6Address: "2001:db8::1"})
	agent.Commit(t.Context(), &event.Txn{Resync: event.Full, Values: values})
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ahead.Store(int64(time.Hour))
	go func() { _ = agent.Run(ctx, make(chan *event.Txn), func(event.Event) {}) }()
	poll.Until(t, "journal", func() bool {
		text, _ := os.ReadFile(path)
		return bytes.Contains(text, []byte(kv.SnatPolicyKey))
	})
}
