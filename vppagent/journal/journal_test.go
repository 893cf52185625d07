package journal

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/kv"
)

// Any file is read: the remembered entries can be parsed, and a rewrite keeps them.
func FuzzJournal(f *testing.F) {
	const name = "config/vpp/v2/route/vrf/0/dst/10.1.2.0/24/gw/192.168.16.2"
	route := name + ` {"dst_network":"10.1.2.0/24","next_hop_addr":"192.168.16.2"}`
	whole := header + "\n" + journalLine('+', route)
	for _, text := range []string{"", whole, whole + journalLine('-', route), whole + journalLine('=', name), whole + journalLine('=', name) + journalLine('?', name), whole + journalLine('=', name) + journalLine('-', name) + journalLine('+', route), whole[:len(whole)-3], "contiv-agent journal 9\n", header + "\n\x00\xff\n", whole + "+ 00000000 x {}\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		j := &Journal{Path: path}
		_ = j.Load() // the error names the skipped lines
		for key, e := range j.live {
			if got, _, err := kv.ParseLine(e.text); err != nil || got != key {
				t.Fatalf("%q is remembered as %q: %v", key, e.text, err)
			}
		}
		if err := j.rewrite(); err != nil {
			t.Fatal(err)
		}
		again := &Journal{Path: path}
		if err := again.Load(); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if a, b := slices.Sorted(maps.Keys(j.live)), slices.Sorted(maps.Keys(again.live)); !slices.Equal(a, b) {
			t.Fatalf("%q became %q", a, b)
		}
		for key := range j.live {
			if j.Begun(key) != again.Begun(key) {
				t.Fatalf("%q was begun: %t, is %t", key, j.Begun(key), again.Begun(key))
			}
		}
	})
}

// A line that is too long hides the lines after it: the journal is damaged, and rewritten.
func TestJournalWithAnEndlessLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	route := `config/vpp/v2/route/vrf/0/dst/10.1.2.0/24/gw/192.168.16.2 {"dst_network":"10.1.2.0/24","next_hop_addr":"192.168.16.2"}`
	text := header + "\n" + strings.Repeat("x", 17<<20) + "\n" + journalLine('+', route)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	j := &Journal{Path: path}
	if err := j.Load(); err == nil || !strings.Contains(err.Error(), "damaged") || !j.broken {
		t.Errorf("%v, to be written anew: %t", err, j.broken)
	}
}

// Objects that are recorded while the file cannot be written are written later, and after a minute that is due.
func TestFailedSave(t *testing.T) {
	line := func(prefix string) (key, text string) {
		text = `config/vpp/v2/route/vrf/0/dst/` + prefix + `/gw/192.168.16.2 {"dst_network":"` + prefix + `","next_hop_addr":"192.168.16.2"}`
		key, _, _ = strings.Cut(text, " ")
		return key, text
	}
	dir := filepath.Join(t.TempDir(), "folder")
	j, now := &Journal{Path: filepath.Join(dir, "journal"), live: map[string]entry{}}, time.Unix(1e9, 0)
	record := func(prefix string) {
		key, text := line(prefix)
		j.live[key] = entry{text: text}
		j.pending = append(j.pending, journalLine('+', text))
	}
	written := func(want ...string) {
		t.Helper()
		again := &Journal{Path: j.Path}
		if err := again.Load(); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, prefix := range want {
			key, _ := line(prefix)
			keys = append(keys, key)
		}
		if got := slices.Sorted(maps.Keys(again.live)); !slices.Equal(got, slices.Sorted(slices.Values(keys))) {
			t.Errorf("%q, want %q", got, keys)
		}
	}
	fails := func() {
		t.Helper()
		if err := j.Save(now); err == nil || j.Due(now.Add(saveAgain-1)) || !j.Due(now.Add(saveAgain)) {
			t.Errorf("%v, due again %s", err, j.Again)
		}
	}
	record("10.1.1.0/24")
	fails() // there is no folder
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := j.rewrite(); err != nil {
		t.Fatal(err)
	}
	written("10.1.1.0/24")
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	record("10.1.2.0/24")
	fails()
	record("10.1.3.0/24")
	fails()
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	if err := j.Save(now); err != nil || j.Due(now.Add(time.Hour)) {
		t.Errorf("%v, due again %s", err, j.Again)
	}
	written("10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24")
}

// An object is begun until VPP has it, and begun again after it is gone; a file says the same, also one of an agent that wrote no confirmations.
func TestBegun(t *testing.T) {
	const name = "config/vpp/v2/route/vrf/0/dst/10.1.2.0/24/gw/192.168.16.2"
	route := name + ` {"dst_network":"10.1.2.0/24","next_hop_addr":"192.168.16.2"}`
	made, doubted, gone, begun := journalLine('=', name), journalLine('?', name), journalLine('-', name), journalLine('+', route)
	for text, want := range map[string]bool{
		"": false, begun: true, made: false, begun + made: false, begun + made + begun: false, begun + made + doubted: true, begun + made + doubted + made: false, begun + made + doubted + gone: false, begun + made + gone: false, begun + made + gone + begun: true,
	} {
		j := &Journal{Path: filepath.Join(t.TempDir(), "journal")}
		if err := os.WriteFile(j.Path, []byte(header+"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := j.Load(); err != nil || j.Begun(name) != want {
			t.Errorf("%q: begun %t, %v", text, j.Begun(name), err)
		}
	}
}
