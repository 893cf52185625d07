package ipam

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/boltstore"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func pod(n int) protocol.Attachment {
	return protocol.Attachment{ContainerID: fmt.Sprint("c", n), IfName: "eth0"}
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// openPool opens a pool with CIDRs in a file; the test closes it.
func openPool(t testing.TB, file string, cidrs ...string) *Pool {
	t.Helper()
	p, err := Open(start, Config{File: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if err := p.SetCIDRs(prefixes(cidrs...)); err != nil {
		t.Fatal(err)
	}
	return p
}

func allocate(t testing.TB, p *Pool, now time.Time, a protocol.Attachment) (out string) {
	t.Helper()
	list, err := p.Allocate(now, a)
	if err != nil {
		t.Fatal(err)
	}
	return addrsOf(list)
}

func addrsOf(list []Lease) string {
	var out []string
	for _, l := range list {
		out = append(out, l.Addr.String())
	}
	return strings.Join(out, " ")
}

// The addresses of the network, the gateway and the broadcast belong to nobody, in each family.
func TestReservedAddressesAreNotAllocated(t *testing.T) {
	p := openPool(t, filepath.Join(t.TempDir(), "ipam.db"), "10.1.1.8/29", "fd00::8/125")
	var got []string
	for i := range 5 {
		got = append(got, allocate(t, p, start, pod(i)))
	}
	want := []string{"10.1.1.10 fd00::a", "10.1.1.11 fd00::b", "10.1.1.12 fd00::c", "10.1.1.13 fd00::d", "10.1.1.14 fd00::e"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	l := p.Leases(pod(0))
	if l[0].Gateway.String() != "10.1.1.9" || l[0].CIDR.String() != "10.1.1.8/29" || l[1].Gateway.String() != "fd00::9" {
		t.Errorf("leases %+v", l)
	}
	_, err := p.Allocate(start, pod(9))
	var e *ExhaustedError
	if !errors.Is(err, ErrExhausted) || !errors.As(err, &e) || !strings.Contains(err.Error(), "podCIDR 10.1.1.8/29: 5 of 5 addresses are in use, 0 were released in the last 10s") {
		t.Errorf("%v", err)
	}
	if got := p.Leases(pod(9)); len(got) > 0 {
		t.Errorf("a refused attachment has %v", got)
	}
}

// A family that is exhausted refuses the whole attachment: nothing of the other family is kept.
func TestAllocateIsAllOrNothing(t *testing.T) {
	p := openPool(t, filepath.Join(t.TempDir(), "ipam.db"), "fd00::/64", "10.1.1.0/30")
	if got := allocate(t, p, start, pod(1)); got != "fd00::2 10.1.1.2" {
		t.Errorf("got %s", got)
	}
	if _, err := p.Allocate(start, pod(2)); !errors.Is(err, ErrExhausted) || strings.Contains(err.Error(), "fd00") {
		t.Errorf("%v", err)
	}
	if u := p.Usage(start); u[0].Used != 1 || u[0].Size != 1<<62 || u[1].Used != 1 || u[1].Size != 1 {
		t.Errorf("usage %+v", u)
	}
}

func TestAllocateAgainReturnsTheSame(t *testing.T) {
	p := openPool(t, filepath.Join(t.TempDir(), "ipam.db"), "10.1.1.0/24")
	a, b := allocate(t, p, start, pod(1)), allocate(t, p, start, pod(1))
	other := allocate(t, p, start, protocol.Attachment{ContainerID: "c1", IfName: "net1"})
	if a != b || other == a {
		t.Errorf("%s, %s, another interface %s", a, b, other)
	}
	if err := p.SetCIDRs(prefixes("10.1.1.0/24", "fd00::/64")); err != nil { // a cluster that becomes dual-stack
		t.Fatal(err)
	}
	if got := allocate(t, p, start, pod(1)); got != a+" fd00::2" {
		t.Errorf("after the second family: %s", got)
	}
}

// CIDRs that change: old addresses stay with their pods, new pods get addresses of the present CIDRs only.
func TestChangedCIDRs(t *testing.T) {
	p := openPool(t, filepath.Join(t.TempDir(), "ipam.db"), "10.1.1.0/30")
	old := allocate(t, p, start, pod(1))
	err := p.SetCIDRs([]netip.Prefix{netip.MustParsePrefix("10.2.0.0/31"), netip.MustParsePrefix("10.2.1.0/30"), netip.MustParsePrefix("10.2.2.0/30")})
	if err == nil || !strings.Contains(err.Error(), "podCIDR 10.2.0.0/31: holds no address for pods") {
		t.Errorf("%v", err)
	}
	if got := []string{allocate(t, p, start, pod(2)), allocate(t, p, start, pod(3))}; !slices.Equal(got, []string{"10.2.1.2", "10.2.2.2"}) {
		t.Errorf("got %s", got)
	}
	if l := p.Leases(pod(1)); addrsOf(l) != old || l[0].CIDR.IsValid() {
		t.Errorf("the old pod has %+v", l)
	}
	if err := p.SetCIDRs(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Allocate(start, pod(4)); !errors.Is(err, ErrNoCIDR) {
		t.Errorf("%v", err)
	}
}

// An address waits for both: the quiet time, and the word that nothing refers to it.
func TestReleasedAddressWaits(t *testing.T) {
	p := openPool(t, filepath.Join(t.TempDir(), "ipam.db"), "10.1.1.0/30")
	allocate(t, p, start, pod(1))
	first, err := p.Release(start, pod(1))
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	refused := func(now time.Time, why string) {
		t.Helper()
		if got, err := p.Allocate(now, pod(2)); !errors.Is(err, ErrExhausted) {
			t.Errorf("%s: %v, %v", why, got, err)
		}
	}
	refused(start.Add(time.Hour), "lists still have it")
	p.Forget(first...)
	refused(start.Add(10*time.Second-1), "the quiet time has not passed")
	allocate(t, p, start.Add(10*time.Second), pod(2))
	second, err := p.Release(start.Add(20*time.Second), pod(2))
	if err != nil {
		t.Fatal(err)
	}
	p.Forget(first...) // late, of the earlier release
	refused(start.Add(time.Hour), "only the earlier release is forgotten")
	p.Forget(second...)
	allocate(t, p, start.Add(time.Hour), pod(3))
}

// A damaged file gives no addresses before the caller has said which are in use.
func TestDamagedFileAllocatesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ipam.db")
	if err := os.WriteFile(file, bytes.Repeat([]byte("garbage "), 2000), 0o600); err != nil {
		t.Fatal(err)
	}
	p := openPool(t, file, "10.1.1.0/29")
	if _, err := p.Allocate(start, pod(1)); !errors.Is(err, ErrIncomplete) || !strings.Contains(p.Remark(), "damaged") {
		t.Errorf("%v, remark %q", err, p.Remark())
	}
	if err := p.Restore(map[protocol.Attachment][]netip.Addr{pod(7): {netip.MustParseAddr("10.1.1.2")}}); err != nil {
		t.Fatal(err)
	}
	if got := allocate(t, p, start, pod(1)); got != "10.1.1.3" {
		t.Errorf("got %s, and 10.1.1.2 is in use", got)
	}
	err := p.Restore(map[protocol.Attachment][]netip.Addr{pod(8): {netip.MustParseAddr("10.1.1.3"), netip.MustParseAddr("10.1.1.4")}})
	if err == nil || !strings.Contains(err.Error(), "address 10.1.1.3 belongs to c1/eth0, not to c8/eth0") || addrsOf(p.Leases(pod(8))) != "10.1.1.4" {
		t.Errorf("%v, %v", err, p.Leases(pod(8)))
	}
}

// A file that cannot be written gives no addresses either: nobody would remember them.
func TestUnwritableFileIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(start, Config{File: filepath.Join(file, "below", "ipam.db")}); err == nil {
		t.Error("opened")
	}
}

// model is what the property test knows about addresses, from outside.
type model struct {
	holder   map[netip.Addr]protocol.Attachment
	released map[netip.Addr]time.Time
	forgot   map[netip.Addr]bool
	tickets  []Released
	cidrs    []netip.Prefix
	now      time.Time
}

// Random calls, times, failed writes and restarts, with CIDRs that change: never twice, never early, nothing leaks.
func TestPool(t *testing.T) {
	dir := t.TempDir()
	if fast, err := os.MkdirTemp("/dev/shm", "ipam"); err == nil { // bbolt syncs each write
		dir = fast
		t.Cleanup(func() { _ = os.RemoveAll(fast) })
	}
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		w := &walk{file: filepath.Join(dir, fmt.Sprint(n)), model: model{
			holder: map[netip.Addr]protocol.Attachment{}, released: map[netip.Addr]time.Time{}, forgot: map[netip.Addr]bool{}, now: start,
		}}
		w.restart(t)
		defer func() { _ = w.pool.Close(); _ = os.Remove(w.file) }()
		w.setCIDRs(t)
		t.Repeat(map[string]func(*rapid.T){
			"allocate": w.allocate, "allocate-": w.allocate, "release": w.release, "release-": w.release, "forget": w.forget, "forget-": w.forget,
			"collect": w.collect, "restart": w.restart, "setCIDRs": w.setCIDRs,
			"wait": func(t *rapid.T) { w.now = w.now.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "s")) * time.Second) },
			"":     w.compare,
		})
	})
}

type walk struct {
	model
	file string
	pool *Pool
}

func (w *walk) restart(t *rapid.T) {
	if w.pool != nil {
		_ = w.pool.Close()
	}
	var err error
	if w.pool, err = Open(w.now, Config{File: w.file}); err != nil {
		t.Fatal(err)
	}
	waiting := w.pool.Waiting()
	for addr, at := range w.released {
		must := !w.forgot[addr] || w.now.Sub(at) < DefaultQuiet
		if must && !slices.ContainsFunc(waiting, func(r Released) bool { return r.Addr == addr }) {
			t.Fatalf("%s was released at %s, and the restart forgot that", addr, at)
		}
	}
	for _, r := range waiting { // an address that was free may wait again
		if h, held := w.holder[r.Addr]; held {
			t.Fatalf("%s of %s counts as released", r.Addr, h)
		}
		w.released[r.Addr], w.forgot[r.Addr] = w.now, false
	}
	w.tickets = append(w.tickets, waiting...)
	_ = w.pool.SetCIDRs(w.cidrs)
}

func (w *walk) setCIDRs(t *rapid.T) {
	all := prefixes("10.1.1.0/29", "10.1.2.0/30", "fd00::/126", "fd00:1::/64", "10.1.1.0/30")
	w.cidrs = rapid.SliceOfN(rapid.SampledFrom(all), 1, 3).Draw(t, "cidrs")
	if err := w.pool.SetCIDRs(w.cidrs); err != nil {
		t.Fatal(err)
	}
}

// write runs a call that may fail to write, or that the process does not survive after the write.
func (w *walk) write(t *rapid.T, call func() error) (done bool) {
	switch fate := rapid.IntRange(0, 9).Draw(t, "fate"); fate {
	case 0:
		full := errors.New("no space left")
		w.pool.update = func(func(*boltstore.Tx) error) error { return full }
		defer func() { w.pool.update = w.pool.file.Update }()
		if err := call(); err != nil && !errors.Is(err, full) && !errors.Is(err, ErrExhausted) {
			t.Fatal(err)
		} else if err == nil {
			return true // nothing to write
		}
		return false
	default:
		if err := call(); err != nil && !errors.Is(err, ErrExhausted) {
			t.Fatal(err)
		} else if err != nil {
			return false
		}
		return true
	}
}

func (w *walk) allocate(t *rapid.T) {
	a := pod(rapid.IntRange(0, 9).Draw(t, "pod"))
	var got []Lease
	var failed error
	w.write(t, func() (err error) {
		got, err = w.pool.Allocate(w.now, a)
		failed = err
		return err
	})
	if failed != nil {
		if errors.Is(failed, ErrExhausted) {
			w.exhausted(t, a)
		}
		return
	}
	for _, l := range got {
		if h, taken := w.holder[l.Addr]; taken && h != a {
			t.Fatalf("%s belongs to %s, and %s got it", l.Addr, h, a)
		} else if taken {
			continue
		}
		if !slices.ContainsFunc(w.cidrs, func(p netip.Prefix) bool { return usableIn(p, l.Addr) }) {
			t.Fatalf("%s is no address for pods of %v", l.Addr, w.cidrs)
		}
		if at, found := w.released[l.Addr]; found && (!w.forgot[l.Addr] || w.now.Sub(at) < DefaultQuiet) {
			t.Fatalf("%s was released at %s, forgotten %v, and %s got it at %s", l.Addr, at, w.forgot[l.Addr], a, w.now)
		}
		w.holder[l.Addr] = a
		delete(w.released, l.Addr)
		delete(w.forgot, l.Addr)
	}
	for _, p := range w.cidrs {
		if !slices.ContainsFunc(got, func(l Lease) bool { return l.Addr.Is6() == p.Addr().Is6() }) {
			t.Fatalf("%s got %v: none of the family of %s", a, got, p)
		}
	}
}

// usableIn is what the property test means by an address for pods.
func usableIn(p netip.Prefix, addr netip.Addr) bool {
	network := p.Masked().Addr()
	return p.Contains(addr) && addr != network && addr != network.Next() && (addr.Is6() || p.Contains(addr.Next()))
}

// exhausted checks that one family of the CIDRs has no free address indeed.
func (w *walk) exhausted(t *rapid.T, a protocol.Attachment) {
	free := map[bool]bool{}
	for _, p := range w.cidrs {
		v6 := p.Addr().Is6()
		free[v6] = free[v6] || p.Bits() == 64
		for addr := p.Addr(); p.Contains(addr) && p.Bits() != 64; addr = addr.Next() {
			_, held := w.holder[addr]
			at, waits := w.released[addr]
			waits = waits && (!w.forgot[addr] || w.now.Sub(at) < DefaultQuiet)
			free[v6] = free[v6] || usableIn(p, addr) && !held && !waits
		}
	}
	for addr, h := range w.holder {
		if h == a {
			free[addr.Is6()] = true
		}
	}
	for _, ok := range free {
		if !ok {
			return
		}
	}
	t.Fatalf("exhausted, and free addresses exist: a leak")
}

func (w *walk) drop(t *rapid.T, list []Released) {
	for _, r := range list {
		if _, held := w.holder[r.Addr]; !held {
			t.Fatalf("%s was released, and nobody held it", r.Addr)
		}
		delete(w.holder, r.Addr)
		w.released[r.Addr], w.forgot[r.Addr] = w.now, false
	}
	w.tickets = append(w.tickets, list...)
}

func (w *walk) release(t *rapid.T) {
	a := pod(rapid.IntRange(0, 9).Draw(t, "pod"))
	var list []Released
	if w.write(t, func() (err error) { list, err = w.pool.Release(w.now, a); return err }) {
		w.drop(t, list)
	}
}

func (w *walk) collect(t *rapid.T) {
	var valid []protocol.Attachment
	for i := range 10 {
		if rapid.Bool().Draw(t, "valid") {
			valid = append(valid, pod(i))
		}
	}
	var list []Released
	if w.write(t, func() (err error) { list, err = w.pool.Collect(w.now, valid); return err }) {
		for _, r := range list {
			if slices.Contains(valid, w.holder[r.Addr]) {
				t.Fatalf("%s of a valid attachment was released", r.Addr)
			}
		}
		for addr, a := range w.holder {
			if !slices.Contains(valid, a) && !slices.ContainsFunc(list, func(r Released) bool { return r.Addr == addr }) {
				t.Fatalf("%s of %s was not released", addr, a)
			}
		}
		w.drop(t, list)
	} else {
		w.drop(t, list) // those before the failed write
	}
}

// forget takes any ticket, also one of an earlier release or of before a restart.
func (w *walk) forget(t *rapid.T) {
	if len(w.tickets) == 0 {
		return
	}
	r := rapid.SampledFrom(w.tickets).Draw(t, "ticket")
	newest := r.Turn
	for _, x := range w.pool.Waiting() {
		if x.Addr == r.Addr {
			newest = x.Turn
		}
	}
	if _, waits := w.released[r.Addr]; waits && r.Turn == newest && slices.Contains(w.pool.Waiting(), r) {
		w.forgot[r.Addr] = true
	}
	w.pool.Forget(r)
}

// compare compares all attachments with the model.
func (w *walk) compare(t *rapid.T) {
	n := 0
	for _, a := range w.pool.Attachments() {
		for _, l := range w.pool.Leases(a) {
			n++
			if w.holder[l.Addr] != a {
				t.Fatalf("%s belongs to %s in the pool and to %s in fact", l.Addr, a, w.holder[l.Addr])
			}
		}
	}
	if n != len(w.holder) {
		t.Fatalf("the pool has %d addresses in use, and %d are", n, len(w.holder))
	}
}

// Any record of the file is an address of a pod, or an error.
func FuzzRecord(f *testing.F) {
	f.Add("pods", "10.1.1.2", []byte(`{"container":"c1","interface":"eth0"}`))
	f.Add("pods", "fd00::2", []byte(`{"container":"c1","interface":"eth0","released":true}`))
	f.Add("pods", "::ffff:10.1.1.2", []byte(`{"container":"c1","interface":"eth0"}`))
	f.Add("pods", "fe80::1%eth0", []byte(`{}`))
	f.Fuzz(func(t *testing.T, group, key string, value []byte) {
		addr, s, err := parseRecord(group, key, value)
		if err != nil {
			return
		}
		if addr.String() != key || group != pods {
			t.Fatalf("%q/%q became %s", group, key, addr)
		}
		if err := (protocol.Attachment{ContainerID: s.Container, IfName: s.Interface}).Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

// Any bytes in the place of the file, or any change of a valid one: Open succeeds or fails, and no address in use is given again without
// an error before.
func FuzzOpen(f *testing.F) {
	file := filepath.Join(f.TempDir(), "ipam.db")
	p := openPool(f, file, "10.1.1.0/28")
	for i := range 4 {
		allocate(f, p, start, pod(i))
	}
	if _, err := p.Release(start, pod(3)); err != nil {
		f.Fatal(err)
	}
	if err := p.Close(); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(nil), uint32(0), byte(0))
	f.Add([]byte("garbage"), uint32(0), byte(0))
	for page := range 6 {
		for _, offset := range []int{0, 8, 10, 12, 16, 20, 32, 60} {
			f.Add([]byte(nil), uint32(page*os.Getpagesize()+offset), byte(1))
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, at uint32, change byte) {
		own := len(content) == 0
		if own {
			content = bytes.Clone(whole)
			content[int(at)%len(content)] ^= change
		}
		file := filepath.Join(t.TempDir(), "ipam.db")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := Open(start, Config{File: file})
		if err != nil {
			return
		}
		defer p.Close()
		if err := p.SetCIDRs(prefixes("10.1.1.0/28")); err != nil {
			t.Fatal(err)
		}
		got, err := p.Allocate(start, pod(9))
		if errors.Is(err, ErrIncomplete) || errors.Is(err, ErrExhausted) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		for _, taken := range []string{"10.1.1.2", "10.1.1.3", "10.1.1.4", "10.1.1.5"} {
			if own && addrsOf(got) == taken {
				t.Fatalf("%s is in use or quiet, and a new pod got it", taken)
			}
		}
	})
}
