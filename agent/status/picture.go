package status

import (
	"fmt"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/counters"
	"github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/proof"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/lossguard"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// The loop never builds a status. It copies references to its state (a picture); readers join, sort and format them.
//
//	loop ─ Health, after each step ───────────────▶ /readyz, /healthz: ready or not
//	     ◀─ Capture ─ Gallery.Run ─ Picture ──────▶ status, reports; /readyz: the problems
//
// One goroutine requests pictures, only after the loop or what Felix has sent has changed, and for at most a share of the loop's time.

// Reader reads the state of one agent. Only Capture must be called in the loop; all other methods are safe for concurrent use.
type Reader struct {
	Node     string            // name of this node
	Services bool              // the agent serves Services
	Settings map[string]string // flags that differ from their defaults
	Recheck  time.Duration     // period of comparisons with VPP
	Now      func() time.Time

	Loop
	Beside
}

// Loop are the parts whose state belongs to the controller's loop.
type Loop struct {
	Controller *controller.Controller
	Processor  *service.Processor
	Policies   *policy.Processor   // nil: policies are not enforced
	Session    *attachment.Session // nil: no Felix
	Mappings   func() int          // frontends among the desired values
}

// Beside are the parts beside the loop, which are safe for concurrent use.
type Beside struct {
	VPPAgent *vppagent.Agent
	Conn     Connection
	Driver   *felix.Supervisor      // nil: no external driver
	NAT      *nattable.Watcher      // nil: sessions are not counted
	Flows    *flows.Watcher         // nil: flows are not watched
	Counters *counters.SourceChecks // drops of source checks
	Proof    *proof.Prover          // nil: the agent does not run
	Rival    func() string          // another agent on this VPP; "": none
	NIC      func() string          // why VPP does not get the node's NIC although it was asked for; "": it does, or nobody asked
	Healthz  func() string          // why kube-proxy's health endpoint is not open; "": it is
	Unserved func() map[model.ServiceID][]string
	// Unrecorded is why the flight recorder does not record; "": it does, or there is none.
	Unrecorded func() string
	Held       func() []lossguard.Held // removals that wait; none if there is no guard
}

// Connection is the connection to VPP; vpp.Conn implements it.
type Connection interface {
	State() vpp.State
}

// Picture is the loop's state at one moment. It is immutable.
type Picture struct {
	*Reader
	loop       *controller.Capture
	policyList []policy.Status
	notes      []model.Note // of the processors
	mappings   int
	pods       map[string]bool // that exist, for drops of source checks; nil: not counted
	felix      *attachment.FelixStatus
	version    uint64        // of the state in it
	cost       time.Duration // of the loop

	services    func() []service.Status         // sorted
	owners      func() []controller.OwnerStatus // sorted
	full, plain func() *Status                  // with and without texts of Services: see Full and Plain
}

// Capture returns a picture. It must be called in the loop.
func (r *Reader) Capture() *Picture {
	began := time.Now()
	out := &Picture{Reader: r, loop: r.Controller.Capture(), notes: r.Processor.Notes(), mappings: r.Mappings(), version: r.version()}
	for i := range out.loop.Wants {
		if w := &out.loop.Wants[i]; len(w.Notes) > 0 {
			w.Notes = r.Named(w.Notes)
		}
	}
	if r.Policies != nil {
		out.policyList, out.notes = r.Policies.Policies(), append(out.notes, r.Policies.Notes()...)
	}
	out.felix, out.pods = r.Session.Status(), r.Counters.Pods()
	list := r.Processor.Unsorted()
	out.services = sync.OnceValue(func() []service.Status { service.SortStatuses(list); return list })
	out.owners = sync.OnceValue(out.loop.Owners)
	out.cost = time.Since(began)
	return out.anew()
}

// version increases with each step of the loop, and with each change of what Felix has sent, which may follow the step that it
// caused. It is safe for concurrent use.
func (r *Reader) version() uint64 { return r.Controller.Steps() + r.Session.Version() }

// anew returns the same picture with new statuses: a status has parts that other goroutines publish.
func (p *Picture) anew() *Picture {
	out := *p
	out.full = sync.OnceValue(func() *Status { return out.build(true) })
	out.plain = sync.OnceValue(func() *Status { return out.build(false) })
	return &out
}

// Full returns the status of the picture. The result is shared: it must not be modified.
func (p *Picture) Full() *Status { return p.full() }

// Plain is Full without the texts of Services.
func (p *Picture) Plain() *Status { return p.plain() }

// build makes a status from the picture and from state that other goroutines publish; without texts, Services have none.
func (p *Picture) build(texts bool) *Status {
	st, vpp := &p.loop.Status, p.VPPAgent.Snapshot()
	out := &Status{
		Node: p.Node, InSync: st.Synced(), Ready: st.Healthy(), Values: st.Values,
		VPP: VPP{
			Connected: st.VPP.Connected, Version: st.VPP.Version, Connections: st.VPP.Generation, Error: errorText(st.VPP.Err),
			Reclassify: vpp.Reclassify.String(), Proof: p.Proof.Last(),
		},
		Sources:  []Source{},
		Settings: p.Settings,
		Services: []Service{},
		Ifs:      interfaces(st.Located),
		Last:     transaction(st.Last),
		Foreign:  vpp.Foreign,
		Drift:    p.drift(vpp.Drift),
	}
	if why := vpp.Reclassify.Consequence(); why != "" && p.Policies != nil {
		out.Notes = append(out.Notes, Note{model.Ref{Kind: model.KindNode, Name: p.Node}.String(), why, Partial})
	}
	for _, src := range st.Sources {
		out.Sources = append(out.Sources, Source{Name: src.Source, Status: src.Status.String(), Error: errorText(src.Err), Note: src.Note})
	}
	for _, ch := range st.Refused {
		out.Refused = append(out.Refused, Refusal{Object: ch.Ref.String(), Origin: ch.Origin, Error: ch.Err.Error()})
	}
	for _, v := range st.Unwell {
		out.Unwell = append(out.Unwell, Value{Key: v.Key, State: v.State.String(), Error: v.Err, Waiting: v.Details})
	}
	out.Awaits, out.Spoofed, out.Mappings = waits(st), p.Counters.Drops(p.pods), p.mappings
	out.Waiting = waitText(out.Awaits)
	p.others(out)
	out.Felix = p.felix
	p.objects(out, st, texts)
	if why := p.Healthz(); why != "" {
		out.Notes = append(out.Notes, Note{model.Ref{Kind: model.KindNode, Name: p.Node}.String(), "healthz is not served yet: " + why, event.Pending.String()})
	}
	if why := p.Unrecorded(); why != "" {
		out.Notes = append(out.Notes, Note{"flight recorder", "does not record: " + why, ""})
	}
	if why := p.NIC(); why != "" { // the node serves without: it stays ready
		out.Notes = append(out.Notes, Note{"NIC", why, Refused})
	}
	for _, h := range p.Held() {
		out.Notes = append(out.Notes, Note{"source " + h.Source, h.String(), Held})
	}
	out.summarize()
	return out
}

// History returns the past transactions that the VPP agent still has. It is safe for concurrent use.
func (r *Reader) History() []Transaction {
	var out []Transaction
	for _, r := range r.VPPAgent.Snapshot().History {
		t := Transaction{
			At: r.At, Seq: r.Seq, Cause: r.Cause, Kind: r.Resync.String(), Add: r.Add, Mod: r.Mod, Del: r.Del, Writes: r.Writes, Took: r.Took, Error: r.Err,
		}
		for _, op := range r.Ops {
			t.Ops = append(t.Ops, op.String())
		}
		if r.Dropped > 0 {
			t.Ops = append(t.Ops, fmt.Sprintf("… and %d more", r.Dropped))
		}
		out = append(out, t)
	}
	return out
}

// others adds state from outside the loop: whether VPP answers, the driver, and the NAT session table.
func (r *Reader) others(out *Status) {
	conn := r.Conn.State()
	out.VPP.Simulated = conn.Simulated
	if why := conn.Silent.Text(time.Now()); why != "" {
		out.Ready, out.VPP.Silent = false, why
		out.alsoAwaits(true, Wait{For: awaitAnswer, Error: why})
	}
	r.driverStatus(out)
	r.natStatus(out)
	out.VPP.Flows = flows.Partial(r.Flows)
	out.VPP.Rival = r.Rival()
}

// natStatus adds the NAT session table: while it is full, the agent is not ready.
func (r *Reader) natStatus(out *Status) {
	out.NAT = r.NAT.Status()
	if out.NAT == nil || !out.NAT.Full {
		return
	}
	out.Ready = false
	out.alsoAwaits(false, Wait{For: awaitNATTable, Error: out.NAT.Problem})
}

// driverStatus adds the state of the driver. Until the driver has received everything, the agent is not healthy.
func (r *Reader) driverStatus(out *Status) {
	if r.Driver == nil {
		return
	}
	st := r.Driver.Status()
	out.driver, out.Driver = st, attachment.ShowDriver(st)
	if st.PID != 0 && st.InSync {
		return
	}
	out.InSync, out.Ready = false, false
	if out.Waiting == "" {
		w := Wait{For: awaitDriver, Name: out.Driver.Path}
		if st.PID == 0 {
			w.Error = st.Trouble
		}
		out.alsoAwaits(false, w)
	}
}

func interfaces(l *event.Located) *Interfaces {
	if l == nil {
		return nil
	}
	out := &Interfaces{Uplink: l.Uplink, Overlay: l.Overlay, Host: l.Host, Pods: map[string]string{}}
	for addr, name := range l.Pods {
		out.Pods[addr.String()] = name
	}
	return out
}

func transaction(c *event.Committed) *Transaction {
	if c == nil {
		return nil
	}
	return &Transaction{
		Seq: c.Seq, Cause: c.Cause, Kind: c.Resync.String(), Add: c.Add, Mod: c.Mod, Del: c.Del, Writes: c.Writes, Took: c.Took, Error: errorText(c.Err),
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
