package extconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// filled returns a closed store file with interfaces a, b, … of client c.
func filled(t testing.TB, n int) (file string, content []byte) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "grpc.db")
	s, err := OpenStore(file)
	if err != nil || s.Remark() != "" {
		t.Fatal(err, s.Remark())
	}
	for i := range n {
		msg := ifs(fmt.Sprintf("if%d=1", i))[0]
		if err := s.Save("c", map[string]proto.Message{kv.Key(msg): msg}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err = os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, content
}

// usable checks that the store at file opens, stores a value, and has it at the next start, without a further remark.
func usable(t testing.TB, file string) (remark string, loaded int) {
	t.Helper()
	s, err := OpenStore(file)
	if err != nil {
		t.Fatal(err)
	}
	remark = s.Remark()
	wants, unread, err := s.Load()
	if err != nil || len(unread) > 0 {
		t.Fatalf("load: %v %v", unread, err)
	}
	if _, err := s.LoadTerms(); err != nil {
		t.Fatal(err)
	}
	msg := ifs("new=1")[0]
	if err := errors.Join(s.Save("c", map[string]proto.Message{kv.Key(msg): msg}, nil), s.Close()); err != nil {
		t.Fatalf("%s: %v", remark, err)
	}
	s, err = OpenStore(file)
	if err != nil || s.Remark() != "" {
		t.Fatalf("opened again: %v %q", err, s.Remark())
	}
	again, _, err := s.Load()
	if err != nil || again["c"][kv.Key(msg)] == nil || s.Close() != nil {
		t.Fatalf("kept: %v, %v", again, err)
	}
	return remark, len(wants["c"])
}

// For any damage, the store opens, reports it, and keeps the damaged file beside; every record it still has is one that was
// written.
func TestDamagedStoreIsSetAside(t *testing.T) {
	garbage := make([]byte, 8<<10)
	for i := range garbage {
		garbage[i] = byte(rand.New(rand.NewPCG(1, uint64(i))).Uint32())
	}
	for name, damage := range map[string]func([]byte) []byte{
		"garbage":           func([]byte) []byte { return garbage },
		"zeros":             func(b []byte) []byte { return make([]byte, len(b)) },
		"text":              func([]byte) []byte { return []byte("this is not a database, however long it is made") },
		"both meta pages":   func(b []byte) []byte { clear(b[:2*os.Getpagesize()]); return b },
		"garbage behind":    func(b []byte) []byte { return append(b[:2*os.Getpagesize()], garbage...) },
		"cut":               func(b []byte) []byte { return b[:3*os.Getpagesize()] },
		"cut within a page": func(b []byte) []byte { return b[:len(b)/3] },
		"a value":           func(b []byte) []byte { return flip(t, b, "if77") },
	} {
		t.Run(name, func(t *testing.T) {
			file, content := filled(t, 100)
			damaged := damage(bytes.Clone(content))
			if err := os.WriteFile(file, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			remark, loaded := usable(t, file)
			if !strings.Contains(remark, file) || !strings.Contains(remark, "damaged") || !strings.Contains(remark, "programs must send all others again") {
				t.Errorf("remark %q", remark)
			}
			asides, _ := filepath.Glob(file + ".damaged-*")
			if len(asides) != 1 {
				t.Fatalf("set aside: %v", asides)
			}
			if kept, err := os.ReadFile(asides[0]); err != nil || !bytes.Equal(kept[:min(len(kept), len(damaged))], damaged[:min(len(kept), len(damaged))]) {
				t.Errorf("what is set aside differs from what was there: %v", err)
			}
			if name == "a value" && loaded != 99 {
				t.Errorf("%d of 100 records are kept", loaded)
			}
		})
	}
}

// flip changes one bit of each copy of a value that has the text behind its key.
func flip(t *testing.T, b []byte, text string) []byte {
	t.Helper()
	at := -1
	for i := 0; ; {
		next := bytes.Index(b[i:], []byte("interfaces/"+text))
		if next < 0 {
			break
		}
		at = i + next + len("interfaces/"+text) + 1
		b[at] ^= 1
		i = at
	}
	if at < 0 {
		t.Fatal("no such value")
	}
	return b
}

// However many files are damaged, three of them are kept.
func TestDamagedStoresAreBounded(t *testing.T) {
	file, _ := filled(t, 1)
	for i := range 5 {
		if err := os.WriteFile(file, fmt.Appendf(nil, "garbage %d, which is no database at all", i), 0o600); err != nil {
			t.Fatal(err)
		}
		usable(t, file)
	}
	asides, _ := filepath.Glob(file + ".damaged-*")
	if len(asides) != 3 {
		t.Fatalf("kept %v", asides)
	}
	if oldest, err := os.ReadFile(asides[0]); err != nil || !strings.HasPrefix(string(oldest), "garbage 2") {
		t.Errorf("the oldest is %q, %v", oldest, err)
	}
}

// A file of a version without checksums gets checksums, and loses nothing.
func TestStoreWithoutChecksumsIsMigrated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grpc.db")
	db, err := bbolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	msg := ifs("a=1")[0]
	value, err := proto.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		all, err := tx.CreateBucket([]byte(clientsV1))
		terms, err2 := tx.CreateBucket([]byte(allTermsV1))
		b, err3 := all.CreateBucket([]byte("/c"))
		tb, err4 := terms.CreateBucket([]byte("/c"))
		return errors.Join(err, err2, err3, err4, b.Put([]byte(kv.Key(msg)), value), tb.Put([]byte(kv.Key(msg)), []byte(`{"labels":{"x":"y"}}`)))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := OpenStore(file)
		if err != nil {
			t.Fatal(err)
		}
		wants, unread, err := s.Load()
		terms, err2 := s.LoadTerms()
		if err != nil || err2 != nil || s.Remark() != "" || len(unread) > 0 || !proto.Equal(wants["c"][kv.Key(msg)], msg) || terms["c"][kv.Key(msg)].Labels["x"] != "y" {
			t.Errorf("wants %v, terms %v, unread %v, %v, %v", wants, terms, unread, err, err2)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if content, _ := os.ReadFile(file); len(content) == 0 {
		t.Error("no file")
	}
	if remark, _ := usable(t, file); remark != "" {
		t.Errorf("remark %q", remark)
	}
}

// A folder that cannot be created leaves a store that keeps nothing, and says why.
func TestUnwritableStore(t *testing.T) {
	file, _ := filled(t, 3)
	s, err := OpenStore(filepath.Join(file, "in", "a", "file.db"))
	if err != nil {
		t.Fatal(err)
	}
	if wants, _, err := s.Load(); err != nil || len(wants) > 0 || s.Remark() == "" || s.Save("c", nil, nil) == nil || s.Close() != nil {
		t.Errorf("wants %v, %v, remark %q", wants, err, s.Remark())
	}
}

// The agent continues with a damaged file, and its status says why programs have to send their configuration again.
func TestKeeperRunsOnWithADamagedStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grpc.db")
	if err := os.WriteFile(file, bytes.Repeat([]byte{0xa5}, 8<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	k := NewKeeper(Config{Name: "grpc", File: file})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var said []string
	err := k.Run(ctx, func(ev event.Event) {
		if st, ok := ev.(*event.SyncStatus); ok {
			said = append(said, fmt.Sprint(st.Source, " ", st.Status, " ", st.Note))
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || len(said) != 1 || !strings.Contains(said[0], "damaged") || !strings.HasPrefix(said[0], "grpc ") {
		t.Errorf("%v, said %q", err, said)
	}
}

// A valid file with arbitrary changes, or arbitrary bytes in its place, is opened or set aside; no input ends the program. Every
// remaining record was once written.
func FuzzOpenStore(f *testing.F) {
	_, whole := filled(f, 3)
	f.Add([]byte(nil), uint32(0), byte(0), uint32(0), byte(0))
	for at := range 4 { // each page: its header, what follows, and its end
		for _, offset := range []int{0, 8, 10, 12, 16, 20, 32, 60} {
			f.Add([]byte(nil), uint32(at*os.Getpagesize()+offset), byte(1), uint32((at+2)*os.Getpagesize()+offset), byte(3))
		}
	}
	f.Add([]byte("garbage"), uint32(0), byte(0), uint32(0), byte(0))
	f.Fuzz(func(t *testing.T, content []byte, at uint32, change byte, at2 uint32, change2 byte) {
		if len(content) == 0 {
			content = bytes.Clone(whole)
			content[int(at)%len(content)] ^= change
			content[int(at2)%len(content)] ^= change2
		}
		file := filepath.Join(t.TempDir(), "x.db")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenStore(file)
		if err != nil {
			t.Fatal(err)
		}
		wants, unread, err := s.Load()
		if err != nil || len(unread) > 0 {
			t.Fatal(err, unread)
		}
		for key, msg := range wants["c"] {
			if !strings.HasSuffix(kv.Format(key, msg), kv.Format(key, ifs(filepath.Base(key) + "=1")[0])) {
				t.Fatalf("%s: %v was never written", key, msg)
			}
		}
		msg := ifs("new=1")[0]
		if err := errors.Join(s.Save("c", map[string]proto.Message{kv.Key(msg): msg}, nil), s.Close()); err != nil {
			t.Fatal(err)
		}
	})
}
