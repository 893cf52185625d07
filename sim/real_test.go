package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"
	"go.fd.io/govpp/binapi/pipe"
)

// realVPP starts the VPP named by CONTIV_VPP; without one the test is skipped with a message (make vpp-test runs it).
func realVPP(t *testing.T) *client {
	t.Helper()
	bin := os.Getenv("CONTIV_VPP")
	if bin == "" || bin == "sim" {
		t.Skip("CONTIV_VPP names no VPP to compare with")
	}
	dir, err := os.MkdirTemp("", "vpp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	args := fmt.Sprintf(`unix { nodaemon cli-listen %[1]s/cli.sock runtime-dir %[1]s poll-sleep-usec 100 } api-segment { prefix %[2]s }
		socksvr { socket-name %[1]s/api.sock } statseg { socket-name %[1]s/stats.sock size 64M page-size 4k }
		memory { main-heap-size 512M main-heap-page-size 4k } buffers { buffers-per-numa 16384 page-size 4k }
		plugins { plugin default { disable } plugin nat_plugin.so { enable } plugin memif_plugin.so { enable } plugin acl_plugin.so { enable } plugin vxlan_plugin.so { enable } plugin flowprobe_plugin.so { enable } }
		acl-plugin { reclassify sessions 1 }`, dir, filepath.Base(dir))
	cmd := exec.Command(bin, strings.Fields(args)...)
	if os.Getenv("CONTIV_VPP_STDERR") != "" {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 200 {
		if nc, err := net.Dial("unix", dir+"/api.sock"); err == nil {
			return shake(t, nc)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("VPP did not open its socket")
	return nil
}

// TestAgainstRealVPP sends the sim and a real VPP the same random requests and compares the replies: retvals, indices, and dumps at
// the end. CONTIV_VPP_SEED and CONTIV_VPP_STEPS repeat a run or make it longer.
func TestAgainstRealVPP(t *testing.T) {
	real := realVPP(t)
	seed := envInt(t, "CONTIV_VPP_SEED", 1)
	steps := envInt(t, "CONTIV_VPP_STEPS", 3000)
	every := envInt(t, "CONTIV_VPP_EVERY", 50) // interval between comparisons of dumps
	v := New(Config{})
	fake := dial(t, v)
	g := &generator{r: rand.New(rand.NewPCG(uint64(seed), 0))}
	t.Cleanup(func() {
		if file := os.Getenv("CONTIV_VPP_LOG"); file != "" && t.Failed() {
			_ = os.WriteFile(file, []byte(strings.Join(texts(v.Log(), Record.String), "\n")+"\n"), 0o600)
		}
	})
	skipped := 0
	for i := range steps {
		m := g.request()
		if attachedElsewhere(v, m) || losesTable0(v, m) {
			skipped++
			continue
		}
		got := answerText(fake, m) // first: if VPP crashes, the log ends with the cause
		want := answerText(real, m)
		if want != got {
			log := v.Log()
			t.Fatalf("seed %d step %d, after\n%s\nvpp: %s\nsim: %s", seed, i, strings.Join(texts(log[max(0, len(log)-25):], Record.String), "\n"), want, got)
		}
		if i%every == every-1 {
			compareDumps(t, real, fake, fmt.Sprintf("seed %d step %d", seed, i))
		}
	}
	t.Logf("seed %d: %d of %d requests left out, because they would attach a route to an interface of another table, or delete table 0", seed, skipped, steps)
	if skipped*33 > steps {
		t.Errorf("seed %d: more than 3%% of the requests were left out", seed)
	}
}

// losesTable0 reports that the request may release a lock of table 0 that belongs to nobody any more: VPP releases one for a mapping of another kind, which
// it does not remove (trapTable0).
func losesTable0(v *VPP, m api.Message) bool {
	d, ok := m.(*nat44_ed.Nat44AddDelStaticMapping)
	if !ok || d.IsAdd {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	owned := len(v.nat.StaticMappings()) + len(v.nat.IdentityMappings())
	for _, m := range v.nat.LBStaticMappings() {
		owned += len(m.Locals)
	}
	return v.fib[ip4].findTable(0).locks[srcNAT] <= owned
}

// attachedElsewhere reports whether after the request a route in one table is attached to an interface of another table. VPP then copies host routes
// of the interface's table; the sim does not (BUGS of package sim).
func attachedElsewhere(v *VPP, m api.Message) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch m := m.(type) {
	case *interfaces_.SwInterfaceSetTable:
		return slices.ContainsFunc(v.fib[fam6(m.IsIPv6)].tables, func(t *table) bool { return t.id != m.VrfID && t.attaches(uint32(m.SwIfIndex)) })
	case *ip.IPRouteAddDel:
		return m.IsAdd && slices.ContainsFunc(m.Route.Paths, func(p fib_types.FibPath) bool {
			f := v.ifs.get(p.SwIfIndex)
			return f != nil && decodePath(&p).attached(p.SwIfIndex) && f.table[m.Route.Prefix.Address.Af] != m.Route.TableID
		})
	default:
		return false
	}
}

// attaches reports whether the API attached a route of the table to the interface.
func (t *table) attaches(swIf uint32) bool {
	for _, e := range t.entries {
		if s := e.source(srcAPI); s != nil && slices.ContainsFunc(s.paths, func(p path) bool { return p.attached(swIf) }) {
			return true
		}
	}
	return false
}

// attached reports whether the path is the interface without a next hop.
func (p path) attached(swIf uint32) bool {
	return p.typ == PathNormal && p.swIf == swIf && !p.via.IsValid()
}

func envInt(t *testing.T, name string, def int) int {
	s := os.Getenv(name)
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// answerText returns the reply without the fields that differ between any two VPPs.
func answerText(c *client, m api.Message) string {
	c.t.Helper()
	r := call1[api.Message](c, m)
	switch r := r.(type) {
	case *ip.IPRouteAddDelReply:
		r.StatsIndex = 0
	case *ip_neighbor.IPNeighborAddDelReply:
		r.StatsIndex = 0
	case *ip.IPRouteLookupReply:
		if r.Retval != 0 {
			return fmt.Sprint(r.Retval)
		}
		r.Route.StatsIndex = 0
		return routeText(r.Route)
	case *nat44_ed.Nat44ShowRunningConfigReply:
		return fmt.Sprintf("%+v", r)
	}
	if getRetval(r) != 0 {
		return fmt.Sprint(getRetval(r))
	}
	return fmt.Sprintf("%+v", r)
}

func routeText(r ip.IPRoute) string {
	var paths []string
	for _, p := range r.Paths {
		d := decodePath(&p)
		d.typ = PathType(p.Type)
		paths = append(paths, fmt.Sprintf("%d if %d nh %s table %d weight %d pref %d", p.Type, int32(p.SwIfIndex), nextHop(&p), p.TableID, p.Weight, p.Preference))
	}
	slices.Sort(paths)
	return fmt.Sprintf("%d:%s %v", r.TableID, fromPrefix(r.Prefix), paths)
}

func compareDumps(t *testing.T, real, fake *client, when string) {
	t.Helper()
	for name, text := range dumpers() {
		want, got := text(real), text(fake)
		if !slices.Equal(want, got) {
			t.Fatalf("%s: %s differs\nonly vpp:\n%s\nonly sim:\n%s", when, name, strings.Join(minus(want, got), "\n"), strings.Join(minus(got, want), "\n"))
		}
	}
}

// minus returns the lines of a that b does not have; if they differ in order only, all of a.
func minus(a, b []string) []string {
	out := slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
	if len(out) == 0 && len(a) == len(b) {
		return a
	}
	return out
}

func texts[D any](list []D, text func(D) string) []string {
	var out []string
	for _, d := range list {
		out = append(out, text(d))
	}
	return out
}

func plain[D any](d D) string { return fmt.Sprintf("%+v", d) }

// dumpers are all dumps, as lines in VPP's order, sorted where that order is arbitrary.
func dumpers() map[string]func(c *client) []string {
	all := interface_types.InterfaceIndex(noIndex)
	return map[string]func(c *client) []string{
		"interfaces": func(c *client) []string {
			return texts(dump[*interfaces_.SwInterfaceDetails](c, &interfaces_.SwInterfaceDump{SwIfIndex: all}), func(d *interfaces_.SwInterfaceDetails) string {
				return fmt.Sprintf("%d sup %d %s type %d flags %d mtu %v tag %q dev %s", d.SwIfIndex, d.SupSwIfIndex, d.InterfaceName, d.Type, d.Flags&1, d.Mtu, d.Tag, d.InterfaceDevType)
			})
		},
		"tables": func(c *client) []string {
			list := texts(dump[*ip.IPTableDetails](c, &ip.IPTableDump{}), func(d *ip.IPTableDetails) string { return fmt.Sprintf("%d %v", d.Table.TableID, d.Table.IsIP6) })
			slices.Sort(list) // of IPv6 the order differs: BUGS of package sim
			return list
		},
		"routes": func(c *client) []string {
			var out []string
			for _, id := range []uint32{0, 5, 6} {
				for _, v6 := range []bool{false, true} {
					for _, d := range dump[*ip.IPRouteDetails](c, &ip.IPRouteDump{Table: ip.IPTable{TableID: id, IsIP6: v6}}) {
						out = append(out, routeText(d.Route))
					}
				}
			}
			slices.Sort(out)
			return out
		},
		"addresses": func(c *client) []string {
			var out []string
			for i := range interface_types.InterfaceIndex(16) {
				for _, v6 := range []bool{false, true} {
					for _, d := range dump[*ip.IPAddressDetails](c, &ip.IPAddressDump{SwIfIndex: i, IsIPv6: v6}) {
						out = append(out, plain(*d))
					}
				}
			}
			slices.Sort(out)
			return out
		},
		"neighbors": func(c *client) []string {
			list := dump[*ip_neighbor.IPNeighborDetails](c, &ip_neighbor.IPNeighborDump{SwIfIndex: all})
			slices.SortFunc(list, func(a, b *ip_neighbor.IPNeighborDetails) int {
				return cmp.Or(cmp.Compare(a.Neighbor.SwIfIndex, b.Neighbor.SwIfIndex), fromAddress(a.Neighbor.IPAddress).Compare(fromAddress(b.Neighbor.IPAddress)))
			})
			return texts(list, func(d *ip_neighbor.IPNeighborDetails) string { return plain(d.Neighbor) })
		},
		"memif sockets": func(c *client) []string {
			out := texts(dump[*memif.MemifSocketFilenameDetails](c, &memif.MemifSocketFilenameDump{}), func(d *memif.MemifSocketFilenameDetails) string {
				return fmt.Sprint(d.SocketID, filepath.Base(d.SocketFilename))
			})
			slices.Sort(out)
			return out
		},
		"pipes": func(c *client) []string {
			return texts(dump[*pipe.PipeDetails](c, &pipe.PipeDump{}), func(d *pipe.PipeDetails) string { return plain(*d) })
		},
		"nat config": func(c *client) []string {
			return []string{answerText(c, &nat44_ed.Nat44ShowRunningConfig{})}
		},
		"nat interfaces": func(c *client) []string {
			return texts(dump[*nat44_ed.Nat44InterfaceDetails](c, &nat44_ed.Nat44InterfaceDump{}), func(d *nat44_ed.Nat44InterfaceDetails) string { return plain(*d) })
		},
		"nat pool": func(c *client) []string {
			return texts(dump[*nat44_ed.Nat44AddressDetails](c, &nat44_ed.Nat44AddressDump{}), func(d *nat44_ed.Nat44AddressDetails) string { return plain(*d) })
		},
		"nat pool interfaces": func(c *client) []string {
			return texts(dump[*nat44_ed.Nat44InterfaceAddrDetails](c, &nat44_ed.Nat44InterfaceAddrDump{}), func(d *nat44_ed.Nat44InterfaceAddrDetails) string { return plain(*d) })
		},
		"nat static": func(c *client) []string {
			return texts(dump[*nat44_ed.Nat44StaticMappingDetails](c, &nat44_ed.Nat44StaticMappingDump{}), func(d *nat44_ed.Nat44StaticMappingDetails) string { return plain(*d) })
		},
		"nat identity": func(c *client) []string {
			return texts(dump[*nat44_ed.Nat44IdentityMappingDetails](c, &nat44_ed.Nat44IdentityMappingDump{}), func(d *nat44_ed.Nat44IdentityMappingDetails) string { return plain(*d) })
		},
		"acls": func(c *client) []string {
			return texts(dump[*acl.ACLDetails](c, &acl.ACLDump{ACLIndex: noIndex}), func(d *acl.ACLDetails) string { return plain(*d) })
		},
		"acl lists": func(c *client) []string {
			return texts(dump[*acl.ACLInterfaceListDetails](c, &acl.ACLInterfaceListDump{SwIfIndex: all}), func(d *acl.ACLInterfaceListDetails) string { return plain(*d) })
		},
		"acl etypes": func(c *client) []string {
			return texts(dump[*acl.ACLInterfaceEtypeWhitelistDetails](c, &acl.ACLInterfaceEtypeWhitelistDump{SwIfIndex: all}), func(d *acl.ACLInterfaceEtypeWhitelistDetails) string { return plain(*d) })
		},
		"macips": func(c *client) []string {
			return texts(dump[*acl.MacipACLDetails](c, &acl.MacipACLDump{ACLIndex: noIndex}), func(d *acl.MacipACLDetails) string { return plain(*d) })
		},
		"macip lists": func(c *client) []string {
			return append(texts(dump[*acl.MacipACLInterfaceListDetails](c, &acl.MacipACLInterfaceListDump{SwIfIndex: all}), func(d *acl.MacipACLInterfaceListDetails) string { return plain(*d) }),
				answerText(c, &acl.MacipACLInterfaceGet{}))
		},
		"acl settings": func(c *client) []string {
			return []string{
				answerText(c, &acl.ACLPluginGetVersion{}), answerText(c, &acl.ACLPluginGetConnTableMaxEntries{}), answerText(c, &acl.ACLPluginUseHashLookupGet{}),
			}
		},
		"nat lb": func(c *client) []string {
			return texts(dump[*nat44_ed.Nat44LbStaticMappingDetails](c, &nat44_ed.Nat44LbStaticMappingDump{}), func(d *nat44_ed.Nat44LbStaticMappingDetails) string { return plain(*d) })
		},
	}
}

// generator makes requests from few values, so that they affect each other. It omits requests that VPP does not survive: pipes
// (pipe_rx, once the parent has an address; pipe_delete of another kind of interface), neighbours of deleted interfaces, the traps
// of vpp.go, and deleted tables, whose routes appear in the next table.
type generator struct{ r *rand.Rand }

func pick[T any](g *generator, list ...T) T { return list[g.r.IntN(len(list))] }

func (g *generator) index() interface_types.InterfaceIndex {
	return interface_types.InterfaceIndex(1 + g.r.IntN(9))
}

func (g *generator) yes() bool { return g.r.IntN(3) > 0 }

func (g *generator) addr() ip_types.IP4Address {
	return pick(g, a4("10.1.0.1"), a4("10.1.0.2"), a4("10.2.0.1"), a4("10.96.0.10"), a4("10.96.0.11"))
}

func (g *generator) prefix() netip.Prefix {
	return netip.MustParsePrefix(pick(g, "10.1.0.1/24", "10.1.0.2/24", "10.2.0.1/16", "10.3.0.1/32", "10.4.0.0/31", "10.5.0.9/30", "10.1.0.0/16",
		"fd00:1::1/64", "fd00:1::2/64", "fd00:2::1/128", "fd00:1::/48", "fd00:3::1/127"))
}

func (g *generator) request() api.Message {
	return pick(g, (*generator).interfaces, (*generator).addresses, (*generator).routes, (*generator).natSetup, (*generator).natMapping, (*generator).natMapping,
		(*generator).acl, (*generator).acl, (*generator).macip)(g)
}

func (g *generator) interfaces() api.Message {
	switch g.r.IntN(9) {
	case 0:
		return &interfaces_.CreateLoopbackInstance{IsSpecified: g.yes(), UserInstance: uint32(g.r.IntN(4))}
	case 1:
		return &interfaces_.DeleteLoopback{SwIfIndex: g.index()}
	case 2:
		return &memif.MemifCreateV2{ID: uint32(g.r.IntN(2)), SocketID: uint32(g.r.IntN(3)), RingSize: pick[uint32](g, 0, 1024, 1000)}
	case 3:
		if g.yes() {
			id := uint32(g.r.IntN(3))
			return &memif.MemifSocketFilenameAddDelV2{IsAdd: g.yes(), SocketID: id, SocketFilename: pick(g, fmt.Sprintf("%d.sock", id), fmt.Sprintf("%d-b.sock", id), "")}
		}
		return &memif.MemifDelete{SwIfIndex: g.index()}
	case 4, 5:
		return &interfaces_.SwInterfaceSetFlags{SwIfIndex: g.index(), Flags: interface_types.IfStatusFlags(g.r.IntN(2))}
	case 6:
		return &interfaces_.SwInterfaceTagAddDel{IsAdd: g.yes(), SwIfIndex: g.index(), Tag: pick(g, "", "x", strings.Repeat("y", 64))}
	case 7:
		return &interfaces_.SwInterfaceSetMtu{SwIfIndex: g.index(), Mtu: []uint32{uint32(1000 + g.r.IntN(3)), 0, 0, 0}}
	default:
		return &interfaces_.SwInterfaceSetTable{SwIfIndex: g.index(), IsIPv6: g.r.IntN(2) > 0, VrfID: pick[uint32](g, 0, 5, 6)}
	}
}

func (g *generator) addresses() api.Message {
	switch g.r.IntN(4) {

	case 0:
		return &interfaces_.SwInterfaceAddDelAddress{SwIfIndex: g.index(), DelAll: true}
	default:
		return &interfaces_.SwInterfaceAddDelAddress{SwIfIndex: g.index(), IsAdd: g.yes(), Prefix: ip_types.AddressWithPrefix(toPrefix(g.prefix()))}
	}
}

func (g *generator) path(table uint32, fam int) fib_types.FibPath {
	hop := pick(g, "10.1.0.9", "10.2.0.9")
	if fam == ip6 {
		hop = pick(g, "fd00:1::9", "fd00:2::9")
	}
	switch g.r.IntN(6) {
	case 0:
		if table != 0 { // trapSpecialPath
			return fib_types.FibPath{SwIfIndex: noIndex, TableID: 5, Proto: fib_types.FibPathNhProto(fam)}
		}
		return fib_types.FibPath{SwIfIndex: noIndex, Proto: fib_types.FibPathNhProto(fam), Type: pick(g, fib_types.FIB_API_PATH_TYPE_DROP, fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH, fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT)}
	case 1:
		return fib_types.FibPath{SwIfIndex: noIndex, TableID: pick[uint32](g, 0, 5, 7), Proto: fib_types.FibPathNhProto(fam)}
	case 2, 3: // no recursive ones: trapUnreachableNextHop
		return path{swIf: uint32(g.index()), weight: uint8(g.r.IntN(3))}.encodePath(fam)
	}
	return path{swIf: uint32(g.index()), via: netip.MustParseAddr(hop), weight: 1, pref: uint8(g.r.IntN(2))}.encodePath(fam)
}

func (g *generator) routes() api.Message {
	table := pick[uint32](g, 0, 0, 5, 6, 7)
	switch g.r.IntN(6) {
	case 0:
		return &ip.IPTableAddDel{IsAdd: true, Table: ip.IPTable{TableID: pick[uint32](g, 0, 5, 6), IsIP6: g.r.IntN(2) > 0, Name: pick(g, "", "t")}}
	case 1:
		return &ip.IPRouteLookup{TableID: table, Exact: uint8(g.r.IntN(2)), Prefix: toPrefix(g.routePrefix())}
	default:
		r := ip.IPRoute{TableID: table, Prefix: toPrefix(g.routePrefix())}
		for range g.r.IntN(3) {
			p := g.path(table, int(r.Prefix.Address.Af))
			if p.Type != fib_types.FIB_API_PATH_TYPE_NORMAL { // a local path among others turns all of them into local ones
				r.Paths = nil
			}
			if r.Paths = append(r.Paths, p); p.Type != fib_types.FIB_API_PATH_TYPE_NORMAL {
				break
			}
		}
		r.NPaths = uint8(len(r.Paths))
		return &ip.IPRouteAddDel{IsAdd: g.yes(), Route: r}
	}
}

func (g *generator) routePrefix() netip.Prefix {
	return netip.MustParsePrefix(pick(g, "0.0.0.0/0", "10.96.0.0/16", "10.96.0.10/32", "10.63.0.7/24", "10.1.0.0/24", "10.1.0.2/32", "172.16.0.1/32",
		"::/0", "fd00:96::/64", "fd00:96::10/128", "fd00:63::7/64", "fd00:1::/64", "fd00:1::2/128"))
}

func (g *generator) natSetup() api.Message {
	role := pick(g, nat_types.NAT_IS_INSIDE, nat_types.NAT_IS_OUTSIDE)
	switch g.r.IntN(12) {
	case 0:
		return &nat44_ed.Nat44EdPluginEnableDisable{Enable: true, Sessions: pick[uint32](g, 0, 1000), Flags: pick(g, nat44_ed.Nat44ConfigFlags(0), nat44_ed.NAT44_IS_STATIC_MAPPING_ONLY)}
	case 1:
		return &nat44_ed.Nat44ForwardingEnableDisable{Enable: g.yes()}
	case 2:
		return &nat44_ed.NatSetTimeouts{UDP: 30, TCPEstablished: 31, TCPTransitory: 32, ICMP: 33}
	case 3, 4, 5:
		return &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: g.yes(), SwIfIndex: g.index(), Flags: role}
	case 6, 7:
		return &nat44_ed.Nat44EdAddDelOutputInterface{IsAdd: g.yes(), SwIfIndex: g.index()}
	case 8:
		return &nat44_ed.Nat44AddDelInterfaceAddr{IsAdd: g.yes(), SwIfIndex: g.index(), Flags: pick(g, 0, nat_types.NAT_IS_TWICE_NAT)}
	case 9:
		return &nat44_ed.Nat44SetSessionLimit{SessionLimit: 500, VrfID: pick[uint32](g, 0, 5, 9)}
	default:
		first := g.addr()
		last := first
		last[3] += byte(g.r.IntN(2))
		return &nat44_ed.Nat44AddDelAddressRange{IsAdd: g.yes(), FirstIPAddress: first, LastIPAddress: last, VrfID: pick[uint32](g, noIndex, noIndex, 0), Flags: pick(g, 0, nat_types.NAT_IS_TWICE_NAT)}
	}
}

func (g *generator) flags() nat_types.NatConfigFlags {
	f := pick(g, 0, 0, nat_types.NAT_IS_TWICE_NAT, nat_types.NAT_IS_SELF_TWICE_NAT)
	if g.yes() {
		f |= nat_types.NAT_IS_OUT2IN_ONLY
	}
	return f
}

func (g *generator) local() nat44_ed.Nat44LbAddrPort {
	return nat44_ed.Nat44LbAddrPort{Addr: pick(g, a4("10.1.0.5"), a4("10.1.0.6"), a4("10.1.0.7")), Port: pick[uint16](g, 80, 81), Probability: uint8(g.r.IntN(3)), VrfID: 0}
}

func (g *generator) natMapping() api.Message {
	port, proto := pick[uint16](g, 80, 81), pick[uint8](g, 6, 17)
	tag := pick(g, "", "ca1:x", strings.Repeat("z", 64))
	switch g.r.IntN(4) {
	case 0:
		flags := g.flags()
		if g.r.IntN(6) == 0 {
			flags |= nat_types.NAT_IS_ADDR_ONLY
		}
		return &nat44_ed.Nat44AddDelStaticMapping{IsAdd: g.yes(), Flags: flags, LocalIPAddress: pick(g, a4("10.1.0.5"), a4("10.1.0.6")), ExternalIPAddress: g.addr(), Protocol: proto, LocalPort: port, ExternalPort: port, ExternalSwIfIndex: interface_types.InterfaceIndex(noIndex), VrfID: 0, Tag: tag}
	case 1:
		return &nat44_ed.Nat44AddDelIdentityMapping{IsAdd: g.yes(), IPAddress: g.addr(), Protocol: proto, Port: port, SwIfIndex: interface_types.InterfaceIndex(noIndex), Tag: tag}
	case 2:
		m := &nat44_ed.Nat44AddDelLbStaticMapping{IsAdd: g.yes(), Flags: g.flags(), ExternalAddr: g.addr(), ExternalPort: port, Protocol: proto, Affinity: uint32(g.r.IntN(2) * 10), Tag: tag}
		for range g.r.IntN(5) {
			m.Locals = append(m.Locals, g.local())
		}
		return m
	default:
		return &nat44_ed.Nat44LbStaticMappingAddDelLocal{IsAdd: g.yes(), ExternalAddr: g.addr(), ExternalPort: port, Protocol: proto, Local: g.local()}
	}
}
