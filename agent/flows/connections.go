package flows

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/sessions"
)

// tables are reads of the sources beside the capture.
type tables struct {
	due      [3]bool // which sources are read
	former   sessions.Reading
	began    [3]time.Time
	ended    [3]time.Time
	sessions []capture.Session
	places   [][]capture.Session // if sessions are too many: a sample; each place has the ways to read its session
	sampled  [][]capture.Session // places whose session is at the interface of a local pod, which the first way to read it says
	present  uint64              // sessions in VPP
	probed   []observation
	nat      sessions.Reading
	err      [3]error
}

// dueTables returns the sources whose pause is over.
func (w *Watcher) dueTables() *tables {
	t, now := &tables{former: w.known.reading}, w.Now()
	for i := range t.due {
		t.due[i] = i > 0 && !now.Before(w.next[i])
	}
	return t
}

// readDue reads the sources that are due. It runs beside all else that the watcher does.
func (t *tables) readDue(ctx context.Context, l Loop, w *Watcher) {
	for i, read := range []func(){1: func() { t.readConnections(ctx, l, w) }, 2: func() {
		t.nat, t.err[2] = sessions.ReadTranslated(ctx, l.Do, w.Translated, t.former)
	}} {
		if t.due[i] {
			t.began[i] = w.Now()
			read()
			t.ended[i] = w.Now()
		}
	}
}

// readConnections reads flowprobe, or the sessions of access lists: with more than the bound a sample of them.
func (t *tables) readConnections(ctx context.Context, l Loop, w *Watcher) {
	if w.Probe != nil {
		t.probed, t.err[1] = w.readProbed(ctx, l)
		return
	}
	t.sessions, t.err[1] = capture.Sessions(ctx, l.Do, w.Sessions)
	if t.present = uint64(len(t.sessions)); !errors.Is(t.err[1], capture.ErrMany) {
		return
	}
	var err error
	if t.places, t.present, err = w.known.sampler.Read(ctx, l.Do, sampledPlaces); err != nil {
		t.err[1] = err
		return
	}
	t.err[1] = fmt.Errorf("%w: at most %d are listed, of more only those at random places", capture.ErrMany, w.Sessions)
}

// addTables notes what was read, and adds the flows of a part of its connections. It returns the others.
func (w *Watcher) addTables(ctx context.Context, l Loop, t *tables) (pending []observation) {
	if len(t.places) > 0 && l.InLoop(ctx, func() { t.sampled = l.keepAtPods(t.places) }) != nil {
		return nil // the agent ends
	}
	seen := w.known.release()
	for i, note := range []func(*tables) []observation{1: w.noteConnections, 2: w.noteTranslated} {
		if !t.due[i] {
			continue
		}
		more := note(t)
		if w.sources[i].stopsVPP() {
			w.next[i] = t.began[i].Add(restFactor * t.ended[i].Sub(t.began[i]))
		}
		w.noteResult(&w.sources[i], len(more), t.err[i])
		w.meter.setShare(&w.sources[i])
		seen = append(seen, more...)
	}
	partial := slices.DeleteFunc(slices.Clone(w.sources), func(s Source) bool { return s.Share() == 1 })
	w.partial.Store(&partial)
	n := min(len(seen), atOnce)
	if n > 0 || l.Policies != nil { // staged policies are read, too
		w.addFlows(ctx, l, seen[:n], true)
	}
	return seen[n:]
}

// addPending adds the flows of a part of the connections that wait, and returns the others.
func (w *Watcher) addPending(ctx context.Context, l Loop, pending []observation) []observation {
	n := min(len(pending), atOnce)
	w.addFlows(ctx, l, pending[:n], false)
	return pending[n:]
}

// noteConnections returns the connections of flowprobe, or the new sessions of access lists.
func (w *Watcher) noteConnections(t *tables) (out []observation) {
	k := &w.known
	if w.Probe != nil {
		k.listed = true
		return t.probed
	}
	k.listed = !errors.Is(t.err[1], capture.ErrMany)
	switch {
	case !k.listed:
		w.sources[1].Present, w.sources[1].Read = t.present, uint64(len(t.places))
		return k.noteSample(t.sampled)
	case t.err[1] != nil:
		return nil
	}
	now, opened := map[string]print{}, map[ends]netip.AddrPort{}
	for i := range t.sessions {
		s := &t.sessions[i]
		o, p := observationOf(s), k.printOf(*s)
		e, _ := endsOf(o.source, o.destination, o.protocol)
		opened[e] = o.source
		if !k.sessions[s.ID].sharesForm(p) && !k.isCounted(e) {
			out = append(out, o)
		}
		now[s.ID] = p
	}
	k.replaceOpened(opened)
	k.sessions = now
	k.assumed, k.ended = nil, recent{} // all sessions are known
	w.sources[1].Present, w.sources[1].Read = t.present, t.present
	return out
}

func observationOf(s *capture.Session) observation {
	return observation{
		source: netip.AddrPortFrom(s.Src, s.SrcPort), destination: netip.AddrPortFrom(s.Dst, s.DstPort), protocol: s.Protocol, input: s.Input,
		counts: flows.Counts{Connections: 1}, seenBy: BySessions,
	}
}

// keepAtPods returns the places whose session is that of a local pod's interface: others repeat it, and count nothing. The
// first way to read such a session is the one with the pod's address. In the loop.
func (l *Loop) keepAtPods(places [][]capture.Session) (out [][]capture.Session) {
	for _, forms := range places {
		for i := range forms {
			if o := observationOf(&forms[i]); !l.isRepeated(&o) {
				out = append(out, append([]capture.Session{forms[i]}, slices.Delete(slices.Clone(forms), i, i+1)...))
				break
			}
		}
	}
	return out
}

// noteSample returns the sessions of a sample that are not known yet. If many places are known, those at others count no connection: they may have been
// counted before.
func (k *known) noteSample(places [][]capture.Session) (out []observation) {
	if k.sessions == nil {
		k.sessions, k.opened = map[string]print{}, map[ends]netip.AddrPort{}
	}
	for _, forms := range places {
		id, p := forms[0].ID, k.printOf(forms...)
		former, knew := k.sessions[id]
		if former.sharesForm(p) {
			continue
		}
		o := observationOf(&forms[0])
		e, _ := endsOf(o.source, o.destination, o.protocol)
		if knew || len(k.sessions) < mostPlaces && len(k.opened) < mostPlaces {
			k.sessions[id] = p
		} else {
			o.counts = flows.Counts{}
		}
		if k.isCounted(e) {
			continue
		}
		if o.counts.Connections > 0 {
			k.opened[e] = o.source
		}
		out = append(out, o)
	}
	return out
}

// noteTranslated returns the connections in NAT44's table. It has those that NAT44 only lets pass, too, and does not say which end opened them: the
// sessions of access lists do. Their packets are added to the flows of sessions. If sessions are too many to list them, the table shows these
// connections in their place, and ports say which end is the client. VPP counts bytes of one direction alone (create_bypass_for_fwd, VPP 25.10), so these
// are left out. It counts a packet from a pod to another node twice, where it comes in and where it goes out (nat_not_translate_output_feature_fwd). With flowprobe none of
// these is taken.
func (w *Watcher) noteTranslated(read *tables) (out []observation) {
	k, r := &w.known, read.nat
	k.current = true
	if err := read.err[2]; err != nil && !errors.Is(err, sessions.ErrMany) {
		return nil
	}
	now, endpoints, assumed := k.unlisted(&r)
	for _, t := range r.Sessions {
		o := observation{source: t.Client, destination: t.Endpoint, protocol: t.Protocol, input: true, seenBy: ByNAT}
		passed := t.Client == t.Source && t.Dialled == t.Endpoint
		e, _ := endsOf(o.source, o.destination, o.protocol)
		key := t
		key.Packets, key.Bytes = 0, 0
		was, knew := k.translated[key]
		if !passed {
			o.translation = &flows.Translation{Dialled: t.Dialled, Source: t.Source}
			endpoints[dial{t.Client, t.Dialled, t.Protocol}] = t.Endpoint
		} else if !k.orient(&o) {
			if k.listed {
				if knew { // its session has ended: it is no new connection when sessions are sampled
					now[key] = was
				}
				if k.assumed[e] {
					assumed[e] = true
				}
				continue
			}
			o.assume()
		}
		is := flows.Counts{Connections: 1, Packets: t.Packets, Bytes: t.Bytes}
		now[key] = is
		same := knew && (was.Packets == is.Packets || was.Packets < is.Packets && was.Bytes <= is.Bytes) // otherwise it is a new connection with the same ends
		if o.assumed && (!same || k.assumed[e]) {
			assumed[e] = true
		}
		switch {
		case same && was.Packets == is.Packets:
			continue
		case same:
			is = flows.Counts{Packets: is.Packets - was.Packets, Bytes: is.Bytes - was.Bytes}
		}
		if o.counts = is; passed {
			o.seenBy, o.counts.Bytes = BySessions, 0
			if !o.assumed {
				o.counts.Connections = 0 // the sessions have it
			}
			out = append(out, o) // at the interface of the pod that opened it, and below at that of the other pod
			o.input = false
		}
		out = append(out, o)
	}
	listed := uint64(len(r.Sessions))
	r.Sessions = nil
	k.translated, k.endpoints, k.reading, k.closed = now, endpoints, r, nil
	if k.replaceAssumed(assumed); !k.listed {
		k.forgetOpened(&r)
	}
	w.sources[2].Present, w.sources[2].Read = r.Present, listed
	return out
}

// firstEphemeral is the least port that Linux gives to clients (net.ipv4.ip_local_port_range).
const firstEphemeral = 32768

// assume chooses the source: the end with the greater port if one is a client's, otherwise the one whose packet NAT44 saw first. That is not the inside,
// which translated returns as the client. It may have answered, as a pod of another node does whose client is one of this node.
func (o *observation) assume() {
	from, to := o.source.Port(), o.destination.Port()
	if o.assumed = true; max(from, to) < firstEphemeral || from <= to {
		o.source, o.destination = o.destination, o.source
	}
}
