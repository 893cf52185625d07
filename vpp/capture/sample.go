package capture

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
)

// Sampler reads sessions at random places of the ACL plugin's tables, one for each command, when they are too many to list them.
type Sampler struct {
	threads []thread
	random  *rand.Rand
}

// thread is the table of one of VPP's threads.
type thread struct {
	sessions uint64
	places   uint64 // about: VPP prints no such number
}

var (
	threadHead   = regexp.MustCompile(`(?m)^Thread #(\d+):`)
	addsAndDels  = regexp.MustCompile(`sw_if_index \d+: add (\d+) - del (\d+) = `)
	placeEntry   = regexp.MustCompile(`session index \d+:\s+info: ([0-9a-f]{16}) ([0-9a-f]{16}) ([0-9a-f]{16}) ([0-9a-f]{16}) ([0-9a-f]{16}) ([0-9a-f]{16})\s`)
	placeTimeout = regexp.MustCompile(`link list id: (\d+)`)
)

// The lists of sessions that are in use have the numbers 1 to 3: one for each timeout. Ended ones are on list 4, and keep that number when their
// place is free (acl_timeout_e, VPP 24.06 to 26.06). VPP makes all places at the start, and uses the first ones first.
const neverUsed, firstTimeout, lastTimeout = "0", "1", "3"

// growths is how often a read doubles what is assumed of a table's size.
const growths = 4

// Read reads n random places, and returns the sessions there, none twice, and how many sessions VPP has. VPP forwards between two places, and
// nothing while it prints one (show acl-plugin sessions thread 0 index 7): it counts the whole tables then. A place may be free. A Session has two forms if
// its place can be read as one of IPv4 and one of IPv6: VPP does not print which it is.
func (s *Sampler) Read(ctx context.Context, do Do, n int) (found [][]Session, total uint64, _ error) {
	if s.random == nil {
		s.random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	text, err := command(ctx, do, allSessions)
	if err != nil {
		return nil, 0, err
	}
	s.countPlaces(text)
	all := uint64(0)
	for i := range s.threads {
		total += s.threads[i].sessions
		for range growths {
			t := &s.threads[i]
			if t.sessions == 0 {
				break
			}
			_, exists, err := place(ctx, do, i, t.places)
			if err != nil {
				return nil, 0, err
			}
			if !exists {
				break
			}
			t.places *= 2
		}
		all += s.threads[i].places
	}
	read := map[string]bool{}
	for ; n > 0 && all > 0; n-- {
		at, i := s.random.Uint64N(all), 0
		for ; at >= s.threads[i].places; i++ {
			at -= s.threads[i].places
		}
		forms, _, err := place(ctx, do, i, at)
		if err != nil {
			return found, total, err
		}
		if len(forms) > 0 && !read[forms[0].ID] {
			read[forms[0].ID] = true
			found = append(found, forms)
		}
	}
	return found, total, nil
}

// countPlaces reads how many sessions each thread has. The table of a thread has at least as many places.
func (s *Sampler) countPlaces(text string) {
	heads := threadHead.FindAllStringIndex(text, -1)
	if len(heads) != len(s.threads) {
		s.threads = make([]thread, len(heads))
	}
	for i, head := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		added, deleted := uint64(0), uint64(0)
		for _, m := range addsAndDels.FindAllStringSubmatch(text[head[1]:end], -1) {
			added, deleted = added+parseCount(m[1]), deleted+parseCount(m[2])
		}
		t := &s.threads[i]
		t.sessions = added - min(deleted, added)
		t.places = max(t.places, t.sessions)
	}
}

// place reads the session at a place of a thread's table; false: the table has no such place, or never used it.
func place(ctx context.Context, do Do, thread int, at uint64) (forms []Session, exists bool, _ error) {
	text, err := command(ctx, do, fmt.Sprintf("%s thread %d index %d", allSessions, thread, at))
	if err != nil {
		return nil, false, err
	}
	m := placeEntry.FindStringSubmatch(text)
	if m == nil {
		return nil, false, nil
	}
	list := placeTimeout.FindStringSubmatch(text)
	if list == nil || list[1] == neverUsed {
		return nil, false, nil
	}
	if list[1] < firstTimeout || list[1] > lastTimeout {
		return nil, true, nil
	}
	var raw [48]byte // fa_5tuple_t, as in the memory of a machine that stores the lower byte first
	for i, word := range m[1:] {
		var n uint64
		if _, err := fmt.Sscanf(word, "%x", &n); err != nil {
			return nil, true, fmt.Errorf("a place of the table of sessions: %q: %w", word, err)
		}
		binary.LittleEndian.PutUint64(raw[8*i:], n)
	}
	return sessionForms(&raw, fmt.Sprintf("%d/%d", thread, at)), true, nil
}

// sessionForms decodes an entry. One of IPv4 has its addresses where one of IPv6 has the end of the destination; what is before them is of the former
// session at the place.
func sessionForms(raw *[48]byte, id string) (forms []Session) {
	const ports, protocol, flags, iface, epoch = 32, 36, 37, 38, 46
	s := Session{
		Protocol: raw[protocol], SrcPort: binary.LittleEndian.Uint16(raw[ports:]), DstPort: binary.LittleEndian.Uint16(raw[ports+2:]),
		Interface: binary.LittleEndian.Uint16(raw[iface:]), Input: raw[flags]&1 != 0, ID: id,
	}
	if s.Input != (raw[epoch+1]&0x80 != 0) {
		return nil // not the direction of the packet that made it
	}
	four, six := s, s
	four.Src, four.Dst = netip.AddrFrom4([4]byte(raw[24:])), netip.AddrFrom4([4]byte(raw[28:]))
	six.Src, six.Dst = netip.AddrFrom16([16]byte(raw[:])), netip.AddrFrom16([16]byte(raw[16:]))
	for _, f := range []Session{four, six} {
		icmp := uint8(1)
		if f.Src.Is6() {
			icmp = 58
		}
		if f.Src.IsUnspecified() || f.Dst.IsUnspecified() || f.Src.Is4In6() || f.Dst.Is4In6() || (f.Protocol == 1 || f.Protocol == 58) && f.Protocol != icmp {
			continue
		}
		forms = append(forms, f)
	}
	return forms
}
