package realvpp

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// apiOnly lets only prod/api reach prod/db, and nobody prod/web.
const apiOnly = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: prod}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: prod}
spec: {podSelector: {matchLabels: {app: web}}}
`

// theirPort is a port of UDP that a foreign list denies.
const theirPort = 9999

// Two doors of the tenants on node-1.
var (
	doorDB     = cni.PodInterface(model.PodID{Namespace: "prod", Name: "db"})
	doorClient = cni.PodInterface(model.PodID{Namespace: "test", Name: "client"})
)

// TestVPPForeignAccessLists: access lists of another API client, attached and not, stay unchanged: lists of policies are attached
// in front of them and removed again, and agents that start anew write nothing.
func TestVPPForeignAccessLists(t *testing.T) {
	f := &foreignCase{aclCase: newACLCase(startTwin(t, theVPP(t), "node-1", agent.Config{}), 1), t: t}
	f.put(stories + "/shared/tenants.yaml")
	f.theirs()
	f.checkVerdicts("no policies", true, false)
	f.policies(true)
	f.checkVerdicts("policies", false, false)
	f.check(f.settled())
	f.stay("restarted", 2)
	f.check(f.restartVPPs())
	f.checkVerdicts("VPP restarted", false, false)
	f.theirs() // the other client has to attach them again
	f.check(f.settled())
	f.stay("restarted on the new VPP", 2)
	f.checkVerdicts("restarted", false, false)
	f.policies(false)
	f.stay("no policies any more", 0)
	f.check(f.settled())
	f.checkVerdicts("no policies any more", true, false)
}

type foreignCase struct {
	*aclCase
	t     *testing.T
	index []uint32 // the ACLs: one attached to prod/db, one to nothing
}

func (f *foreignCase) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *foreignCase) put(path string) {
	f.t.Helper()
	changes, err := manifest.Load(path)
	f.check(err)
	f.check(f.apply(changes))
}

func (f *foreignCase) policies(there bool) {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "policies.yaml")
	f.check(os.WriteFile(file, []byte(apiOnly), 0o600))
	changes, err := manifest.Load(file)
	f.check(err)
	if !there {
		for i := range changes {
			changes[i] = event.Change{Ref: changes[i].Ref}
		}
	}
	before := len(f.written)
	f.check(f.apply(changes))
	if len(f.written) == before {
		f.t.Fatal("policies came or went and nothing was written")
	}
}

// theirs configures two ACLs as another API client would; one is attached in both directions of prod/db.
func (f *foreignCase) theirs() {
	f.t.Helper()
	every := func(permit acl_types.ACLAction, proto model.Protocol, port uint16, p string) acl_types.ACLRule {
		any := prefix(netip.MustParsePrefix(p))
		r := acl_types.ACLRule{IsPermit: permit, SrcPrefix: any, DstPrefix: any, SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535}
		if port != 0 {
			r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast = port, port
		}
		r.Proto = ip_types.IPProto(proto)
		return r
	}
	f.index = nil
	for n, rules := range [][]acl_types.ACLRule{
		{
			every(acl_types.ACL_ACTION_API_DENY, model.UDP, theirPort, "0.0.0.0/0"), every(acl_types.ACL_ACTION_API_DENY, model.UDP, theirPort, "::/0"),
			every(acl_types.ACL_ACTION_API_PERMIT_REFLECT, 0, 0, "0.0.0.0/0"), every(acl_types.ACL_ACTION_API_PERMIT_REFLECT, 0, 0, "::/0"),
		},
		{every(acl_types.ACL_ACTION_API_DENY, 0, 0, "0.0.0.0/0")},
	} {
		m := &acl.ACLAddReplace{ACLIndex: ^uint32(0), Tag: fmt.Sprintf("somebody else %d", n), Count: uint32(len(rules)), R: rules}
		f.check(f.wake())
		x, y := f.beside.conn.Do(context.Background(), vpp.Call{Msg: m})[0], f.lab.plain.conn.Do(context.Background(), vpp.Call{Msg: m})[0]
		if x.Err != nil || y.Err != nil || x.Msg.(*acl.ACLAddReplaceReply).ACLIndex != y.Msg.(*acl.ACLAddReplaceReply).ACLIndex {
			f.t.Fatalf("the two made %+v and %+v of it", x, y)
		}
		f.index = append(f.index, y.Msg.(*acl.ACLAddReplaceReply).ACLIndex)
	}
	for _, in := range []bool{true, false} { // behind the present lists
		f.check(f.each(func(i index) api.Message {
			return &acl.ACLInterfaceAddDel{IsAdd: true, IsInput: in, SwIfIndex: i(doorDB), ACLIndex: f.index[0]}
		}))
	}
}

// stay wants their ACLs where they were: at prod/db behind ours, of which each direction has at least one if ours is not 0, and nowhere else.
// Without policies ours are the source check of the input alone.
func (f *foreignCase) stay(when string, ours int) {
	f.t.Helper()
	f.check(f.compareDumps())
	details, err := f.lab.dump(&acl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)})
	f.check(err)
	seen := false
	for _, d := range details {
		l, ok := d.(*acl.ACLInterfaceListDetails)
		if !ok {
			continue
		}
		in, out := l.Acls[:l.NInput], l.Acls[l.NInput:]
		if slices.Contains(l.Acls, f.index[1]) {
			f.t.Fatalf("%s: their other ACL is attached to interface %d", when, l.SwIfIndex)
		}
		if l.SwIfIndex != f.lab.index[doorDB] {
			if slices.Contains(l.Acls, f.index[0]) {
				f.t.Fatalf("%s: their ACL got to interface %d", when, l.SwIfIndex)
			}
			continue
		}
		seen = true
		if len(in) == 0 || len(out) == 0 || in[len(in)-1] != f.index[0] || out[len(out)-1] != f.index[0] || len(out) < 1+min(ours, 1) || ours == 0 && (len(in) != 2 || len(out) != 1) {
			f.t.Fatalf("%s: the lists of prod/db are %v and %v; theirs is %d, ours are %d or more", when, in, out, f.index[0], ours)
		}
	}
	if !seen {
		f.t.Fatalf("%s: prod/db has no lists", when)
	}
	for n, i := range f.index {
		details, err := f.lab.dump(&acl.ACLDump{ACLIndex: i})
		f.check(err)
		if d := details[0].(*acl.ACLDetails); d.Tag != fmt.Sprintf("somebody else %d", n) || len(d.R) != []int{4, 1}[n] {
			f.t.Fatalf("%s: their ACL %d is now %q with %d rules", when, i, d.Tag, len(d.R))
		}
	}
}

// checkVerdicts checks whether test/client reaches prod/db, by TCP and by the UDP port that the foreign list denies; prod/api always does by TCP.
func (f *foreignCase) checkVerdicts(when string, tcp, udp bool) {
	f.t.Helper()
	for _, family := range [][3]string{{"10.1.1.22", "10.1.1.12", "10.1.2.13"}, {"fd00:1:1::22", "fd00:1:1::12", "fd00:1:2::13"}} {
		client, db, api := netip.MustParseAddr(family[0]), netip.MustParseAddr(family[1]), netip.MustParseAddr(family[2])
		for _, q := range []struct {
			door string
			p    packet.Packet
			want bool
		}{
			{doorClient, packet.NewTCP(f.end(client), netip.AddrPortFrom(db, 5432)), tcp},
			{doorClient, packet.NewUDP(f.end(client), netip.AddrPortFrom(db, theirPort)), udp},
			{cni.Overlay, packet.NewTCP(f.end(api), netip.AddrPortFrom(db, 5432)), true},
		} {
			out, err := f.send(q.door, same(q.p))
			f.check(err)
			if (len(out) == 1 && out[0].at == doorDB) != q.want {
				f.t.Fatalf("%s: %s: %d packets left, passing should be %v", when, &q.p, len(out), q.want)
			}
			if q.want { // and the answer
				back, err := f.send(doorDB, out[0].reply())
				f.check(err)
				if len(back) != 1 {
					f.t.Fatalf("%s: the answer to %s is lost", when, &q.p)
				}
			}
		}
	}
}

func (f *foreignCase) end(a netip.Addr) netip.AddrPort {
	f.port++
	return netip.AddrPortFrom(a, f.port)
}
