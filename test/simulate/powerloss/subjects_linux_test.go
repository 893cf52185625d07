package powerloss

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/atomicfile"
	"github.com/contiv-agent/contiv-agent/boltstore"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig"
	"github.com/contiv-agent/contiv-agent/plugins/ipam"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/recorder/record"
	"github.com/contiv-agent/contiv-agent/recorder/segment"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/journal"
)

// subject is something that writes to a disk.
type subject struct {
	// work writes below dir, in steps. It calls acked after each step whose effect must survive from then on.
	work func(dir string, acked func()) error
	// check opens what a loss of power has left, after this many steps: it has what they wrote, and may have what the next one writes.
	check func(dir string, steps int) error
}

var subjects = map[string]subject{
	"a file is replaced":    {replaceFile, checkFile},
	"values of clients":     {saveValues, checkValues},
	"addresses of pods":     {allocate, checkAddresses},
	"DELs without an agent": {recordDELs, checkDELs},
	"a damaged store":       {damageStore, checkDamaged},
	"journal of objects":    {writeJournal, checkJournal},
	"journal of events":     {writeEvents, checkEvents},
}

// steps is how often each subject writes.
const steps = 12

// replaced is the content of the file after a step: longer than a sector, of different lengths.
func replaced(step int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "content %d\n", step), 100+70*(step%3))
}

func replaceFile(dir string, acked func()) error {
	for i := range steps {
		if err := atomicfile.Write(filepath.Join(dir, "file"), replaced(i+1), 0o600); err != nil {
			return err
		}
		acked()
	}
	return nil
}

func checkFile(dir string, steps int) error {
	got, err := os.ReadFile(filepath.Join(dir, "file"))
	switch {
	case errors.Is(err, fs.ErrNotExist) && steps == 0:
		return nil
	case err != nil:
		return err
	case !bytes.Equal(got, replaced(steps)) && !bytes.Equal(got, replaced(steps+1)):
		return fmt.Errorf("a file of %d bytes, %.20q, after step %d", len(got), got, steps)
	}
	return nil
}

// savedValues are the MTUs of a client's interfaces after a step. Each third step removes one.
func savedValues(step int) map[string]uint32 {
	out := map[string]uint32{}
	for i := 1; i <= step; i++ {
		if name := fmt.Sprintf("ext-%d", i%4); i%3 == 0 {
			delete(out, name)
		} else {
			out[name] = uint32(1500 + i) //nolint:gosec // small
		}
	}
	return out
}

func storeOf(dir string) string { return filepath.Join(dir, "external", "grpc.db") }

func saveValues(dir string, acked func()) error {
	s, err := extconfig.OpenStore(storeOf(dir))
	if err != nil {
		return err
	}
	for i := 1; i <= steps; i++ {
		name := fmt.Sprintf("ext-%d", i%4)
		key := "config/vpp/v2/interfaces/" + name
		change := map[string]proto.Message{key: nil}
		if mtu := savedValues(i)[name]; mtu != 0 {
			change[key] = &interfaces.Interface{Name: name, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Mtu: mtu}
		}
		if err := s.Save("client", change, nil); err != nil {
			return err
		}
		acked()
	}
	return s.Close()
}

func checkValues(dir string, steps int) error {
	s, err := extconfig.OpenStore(storeOf(dir))
	if err != nil {
		return err
	}
	defer s.Close()
	wants, unread, err := s.Load()
	if err = errors.Join(append(unread, err)...); err != nil {
		return err
	}
	got := map[string]uint32{}
	for _, m := range wants["client"] {
		i := m.(*interfaces.Interface)
		got[i.Name] = i.Mtu
	}
	if !maps.Equal(got, savedValues(steps)) && !maps.Equal(got, savedValues(steps+1)) || s.Remark() != "" {
		return fmt.Errorf("after step %d: %v, %s; want %v", steps, got, s.Remark(), savedValues(steps))
	}
	return nil
}

func attachmentOf(step int) protocol.Attachment {
	return protocol.Attachment{ContainerID: fmt.Sprintf("sandbox%d", step), IfName: "eth0"}
}

func openPool(dir string) (*ipam.Pool, error) {
	p, err := ipam.Open(time.Now(), ipam.Config{File: filepath.Join(dir, "addresses.db")})
	if err != nil {
		return nil, err
	}
	return p, p.SetCIDRs([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00:1::/64")})
}

func allocate(dir string, acked func()) error {
	p, err := openPool(dir)
	if err != nil {
		return err
	}
	for i := range steps {
		if _, err := p.Allocate(time.Now(), attachmentOf(i+1)); err != nil {
			return err
		}
		acked()
	}
	return p.Close()
}

func checkAddresses(dir string, steps int) error {
	p, err := openPool(dir)
	if err != nil {
		return err
	}
	defer p.Close()
	for i := range steps {
		if got := p.Leases(attachmentOf(i + 1)); len(got) != 2 {
			return fmt.Errorf("%s has the addresses %v after step %d", attachmentOf(i+1), got, steps)
		}
	}
	if n := len(p.Attachments()); n > steps+1 || p.Remark() != "" {
		return fmt.Errorf("%d attachments after step %d; %s", n, steps, p.Remark())
	}
	return nil
}

func spool(dir string) protocol.Spool { return protocol.Spool{Dir: filepath.Join(dir, "cni", "dels")} }

func recordDELs(dir string, acked func()) error {
	for i := range steps {
		if err := spool(dir).Record(protocol.Request{Attachment: attachmentOf(i + 1), Network: "contiv"}); err != nil {
			return err
		}
		acked()
	}
	return nil
}

func checkDELs(dir string, steps int) error {
	list, err := spool(dir).Read(time.Now())
	for i := range steps {
		if !slices.ContainsFunc(list, func(r protocol.Request) bool { return r.Attachment == attachmentOf(i+1) }) {
			err = errors.Join(err, fmt.Errorf("no record of %s after step %d", attachmentOf(i+1), steps))
		}
	}
	return err
}

// Records of a store that is damaged at its first step, and opened again at its second.
const (
	inStore = 6
	bucket  = "things/v1"
)

func openThings(dir string) (*boltstore.File, error) {
	return boltstore.Open(filepath.Join(dir, "things.db"), boltstore.Schema{Buckets: []string{bucket}})
}

func thing(i int) string { return fmt.Sprintf("thing-%d-%s", i, strings.Repeat("x", 30)) }

func damageStore(dir string, acked func()) error {
	f, err := openThings(dir)
	if err != nil {
		return err
	}
	err = f.Update(func(tx *boltstore.Tx) error {
		var errs []error
		for i := range inStore {
			errs = append(errs, tx.Put(bucket, "group", fmt.Sprint(i), []byte(thing(i))))
		}
		return errors.Join(errs...)
	})
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := damage(filepath.Join(dir, "things.db"), []byte(thing(0))); err != nil {
		return err
	}
	acked()
	if f, err = openThings(dir); err != nil {
		return err
	}
	acked()
	return f.Close()
}

// damage overwrites a text wherever a file has it.
func damage(path string, text []byte) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(bytes.ReplaceAll(content, text, bytes.Repeat([]byte("?"), len(text))), 0)
	return errors.Join(err, f.Sync(), f.Close())
}

func checkDamaged(dir string, steps int) error {
	if steps == 0 {
		return nil
	}
	f, err := openThings(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	found := map[string]bool{}
	err = f.Each(bucket, func(_, key string, value []byte) error {
		found[string(value)] = true
		return nil
	})
	for i := 1; i < inStore; i++ {
		if !found[thing(i)] {
			return fmt.Errorf("a whole record of a damaged store is lost, and the remark is %q", f.Remark())
		}
	}
	return err
}

// route is an object without a tag.
func route(step int) *l3.Route {
	return &l3.Route{DstNetwork: fmt.Sprintf("10.%d.0.0/16", step), NextHopAddr: "192.168.16.2"}
}

func writeJournal(dir string, acked func()) error {
	j := &journal.Journal{Path: filepath.Join(dir, "journal")}
	if err := j.Load(); err != nil {
		return err
	}
	d := &descriptor.Descriptor{Message: func(state any) proto.Message { return state.(*l3.Route) }}
	for i := range steps {
		m := route(i + 1)
		j.Set(kv.Key(m), d, m, true)
		if err := j.Save(time.Now()); err != nil {
			return err
		}
		acked()
	}
	return nil
}

// checkJournal: lines are appended without fsync, because VPP loses the objects with the power. The file is read nevertheless, and each object in it is one that was written.
// The first step writes the file.
func checkJournal(dir string, steps int) error {
	j := &journal.Journal{Path: filepath.Join(dir, "journal")}
	if err := j.Load(); err != nil && !strings.Contains(err.Error(), "damaged") {
		return err
	}
	known := map[string]bool{}
	for i := range steps + 1 {
		m := route(i + 1)
		known[kv.Format(kv.Key(m), m)] = true
	}
	n := 0
	for _, text := range j.Entries() {
		if n++; !known[text] {
			return fmt.Errorf("the journal has %q after step %d", text, steps)
		}
	}
	if steps > 0 && n == 0 {
		return errors.New("the journal has nothing, not even what its first write has synced")
	}
	if err := j.Save(time.Now()); err != nil {
		return err
	}
	return (&journal.Journal{Path: j.Path}).Load()
}

func openEvents(dir string) (*segment.Writer, error) {
	return segment.Open(segment.Config{Dir: filepath.Join(dir, "events"), Bound: segment.MinBound, Now: time.Now})
}

func writeEvents(dir string, acked func()) error {
	w, err := openEvents(dir)
	if err != nil {
		return err
	}
	for i := range steps {
		body := fmt.Sprintf(`{"step":%d,"text":%q}`, i+1, strings.Repeat("x", 3000))
		if _, err := w.Append([]record.Line{{Op: record.Put, Key: fmt.Sprint("thing ", i%3), Body: []byte(body), At: time.Now()}}); err != nil {
			return err
		}
		acked()
	}
	return w.Close()
}

// checkEvents: no line is synced. The folder is opened and written nevertheless.
func checkEvents(dir string, _ int) error {
	w, err := openEvents(dir)
	if err != nil {
		return err
	}
	_, err = w.Append([]record.Line{{Op: record.Put, Key: "thing last", Body: []byte(`{}`), At: time.Now()}})
	return errors.Join(err, w.Close())
}
