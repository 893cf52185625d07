package realvpp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// stories is where test/scenario has its scripts; its package comment explains the commands.
const stories = "../scenario/testdata"

// elsewhere are the scripts that say nothing about a real VPP, by what they need and a real one cannot give.
var elsewhere = map[string]string{
	"affinity": "asks what a load balancer might choose without letting it choose, which affinity would remember",
}

// brokenNewer are those of which VPP 26.06's cnat makes something else, as it should not.
var brokenNewer = map[string]string{
	"no-endpoints-ipv6": "has ICMP errors of VPP itself, which cnat gives other addresses",
	"services-ipv6":     "has IPv6 addresses whose last 32 bits are the same, which cnat takes for the same address",
}

// comparing are the commands that compare texts: the simulated VPP's scripts do that already.
var comparing = []string{"dump", "cmp", "cp", "status", "health", "policy", "log", "trace", "stdout", "stderr", "exists"}

// TestVPPScenarios plays the stories of test/scenario with a real VPP on every node, and a simulated one beside it.
func TestVPPScenarios(t *testing.T) {
	path := theVPP(t)
	files, err := filepath.Glob(stories + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", stories, err)
	}
	played, newer := 0, isNewerVPP(path)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if elsewhere[name] != "" {
			t.Logf("%s is left out: it %s", name, elsewhere[name])
			continue
		}
		if why := brokenNewer[name]; why != "" && newer {
			t.Logf("%s is left out: it %s", name, why)
			continue
		}
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if why := unreal(string(a.Comment)); why != "" {
			t.Logf("%s is left out: it %s", name, why)
			continue
		}
		played++
		t.Run(name, func(t *testing.T) { play(t, path, a) })
	}
	if played < len(files)/2 {
		t.Errorf("only %d of %d scripts were played", played, len(files))
	}
}

// unreal returns what a script asks for that a real VPP cannot do.
func unreal(script string) string {
	for line := range strings.Lines(script) {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "! "))
		switch {
		case len(words) == 0:
		case words[0] == "advance":
			return "sets clocks forward"
		case words[0] == "fail":
			return "makes VPP refuse messages"
		}
	}
	return ""
}

// script is one story on real VPPs.
type script struct {
	*cluster
	dir   string
	talks map[string]*standing
	// streams are those who talked SCTP where nat44 serves: it remembers the pair, without ports, and the next question would not be about a new connection.
	streams map[[2]netip.Addr]bool
}

// standing is a connection that stays.
type standing struct {
	from place
	outcome
}

func play(t *testing.T, path string, a *txtar.Archive) {
	s := &script{dir: t.TempDir(), talks: map[string]*standing{}, streams: map[[2]netip.Addr]bool{}, cluster: newCluster(path, agent.Config{})}
	t.Cleanup(s.close)
	if err := s.unpack(a); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(a.Comment)) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		negative := words[0] == "!"
		if negative {
			words = words[1:]
		}
		if slices.Contains(comparing, words[0]) {
			continue
		}
		err := s.do(words[0], words[1:])
		var d *difference
		switch {
		case errors.As(err, &d), err != nil && !negative:
			t.Fatalf("line %d: %s: %v", n, strings.TrimSpace(line), err)
		case err == nil && negative:
			t.Fatalf("line %d: %s: succeeded, an error was expected", n, strings.TrimSpace(line))
		}
	}
}

// unpack writes the script's files and the shared ones it does not have itself.
func (s *script) unpack(a *txtar.Archive) error {
	shared, err := filepath.Glob(stories + "/shared/*")
	if err != nil {
		return err
	}
	for _, f := range shared {
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.dir, filepath.Base(f)), data, 0o600); err != nil {
			return err
		}
	}
	for _, name := range []string{"broken", "guestbook"} {
		if err := os.CopyFS(filepath.Join(s.dir, "examples", name), os.DirFS(filepath.Join("../../examples", name))); err != nil {
			return err
		}
	}
	for _, f := range a.Files {
		to := filepath.Join(s.dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(to, f.Data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) do(command string, args []string) error {
	switch command {
	case "agent":
		return s.settings(args)
	case "apply":
		return s.applyFiles(args, false)
	case "delete":
		return s.applyFiles(args, true)
	case "pkt":
		return s.pkt(args)
	case "connect":
		return s.connect(args)
	case "still":
		return s.still(args)
	case "restart-vpp":
		return s.each(args, (*twin).restartVPPs)
	case "stop-agent":
		return s.each(args, (*twin).stopAgents)
	case "restart-agent":
		return s.each(args, (*twin).restartAgents)
	case "clear-log":
		return s.each(args, func(w *twin) error { w.written = nil; return nil })
	case "writes":
		return s.writes(args)
	case "foreign":
		return s.foreign(args)
	}
	return fmt.Errorf("unknown command %q", command)
}

// each does something with the nodes named, or all.
func (s *script) each(names []string, do func(*twin) error) error {
	if len(names) == 0 {
		names = s.names()
	}
	for _, name := range names {
		w := s.nodes[name]
		if w == nil {
			return fmt.Errorf("there is no node %q", name)
		}
		if err := do(w); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}

func (s *script) settings(args []string) error {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "weight":
			n, err := strconv.ParseUint(value, 10, 8)
			if err != nil {
				return err
			}
			s.config.Services.Renderer.NAT44.LocalEndpointWeight, s.config.Services.Renderer.CNAT.LocalEndpointWeight = uint8(n), uint8(n)
		case "proxy-name":
			s.config.Services.ProxyName = value
		case "snat":
			s.config.Services.Renderer.NAT44.DisableSNAT, s.config.Services.Renderer.CNAT.DisableSNAT = value == "off", value == "off"
		case "renderer":
			s.config.Services.Renderer.Choice = agent.ServiceRenderer(value)
			for _, w := range s.nodes {
				w.config.Services.Renderer.Choice = s.config.Services.Renderer.Choice
			}
		case "policies":
			s.config.Policies.Off = value == "off"
			for _, w := range s.nodes {
				w.config.Policies.Off = s.config.Policies.Off
			}
		case "terminating":
			s.config.Services.KeepTerminating = value == "keep"
		case "node-ports":
			var err error
			if s.config.Services.NodePorts, err = service.ParseNodePortAddresses(strings.Split(value, ",")); err != nil {
				return err
			}
		case "external-ip-cidrs":
			s.config.Services.ExternalIPCIDRs = nil
			for _, text := range strings.Split(value, ",") {
				cidr, err := netip.ParsePrefix(text)
				if err != nil {
					return err
				}
				s.config.Services.ExternalIPCIDRs = append(s.config.Services.ExternalIPCIDRs, cidr)
			}
		case "maglev":
			s.config.Services.Renderer.CNAT.Maglev = value == "on"
		default:
			return fmt.Errorf("unknown setting %q", key)
		}
	}
	return nil
}

func (s *script) applyFiles(args []string, remove bool) error {
	if remove && len(args) == 2 && !strings.Contains(args[0], ".") {
		r, err := reference(args[0], args[1])
		if err != nil {
			return err
		}
		return s.apply([]event.Change{{Ref: r}})
	}
	var paths []string
	for _, f := range args {
		paths = append(paths, filepath.Join(s.dir, f))
	}
	changes, err := manifest.Load(paths...)
	if err != nil {
		return err
	}
	for i := range changes {
		if remove {
			changes[i] = event.Change{Ref: changes[i].Ref}
		}
	}
	return s.apply(changes)
}

func reference(kind, name string) (model.Ref, error) {
	for _, k := range []model.Kind{model.KindNode, model.KindNamespace, model.KindServiceCIDR} {
		if strings.EqualFold(string(k), kind) {
			return model.Ref{Kind: k, Name: name}, nil
		}
	}
	for _, k := range []model.Kind{model.KindService, model.KindEndpointSlice, model.KindPod} {
		if strings.EqualFold(string(k), kind) {
			ns, name := inNamespace(name)
			return model.Ref{Kind: k, Namespace: ns, Name: name}, nil
		}
	}
	return model.Ref{}, fmt.Errorf("unknown kind %q", kind)
}

func inNamespace(name string) (namespace, rest string) {
	if ns, rest, ok := strings.Cut(name, "/"); ok {
		return ns, rest
	}
	return "default", name
}

func (s *script) writes(args []string) error {
	w := s.nodes[args[0]]
	if w == nil {
		return fmt.Errorf("there is no node %q", args[0])
	}
	if n, err := strconv.Atoi(args[1]); err != nil || n != len(w.written) {
		return fmt.Errorf("want %s writes, got %d:\n%s", args[1], len(w.written), strings.Join(w.written, "\n"))
	}
	return nil
}

// origin resolves FROM.
func (s *script) origin(text string) (place, error) {
	kind, rest, ok := strings.Cut(text, ":")
	if !ok {
		kind, rest = "pod", text
	}
	switch kind {
	case "node":
		n, err := object[*model.Node](s.cluster, model.KindNode, "", rest)
		if err != nil {
			return place{}, err
		}
		return place{node: rest, door: cni.Host, addr: n.Addrs()[0], addrs: n.Addrs()}, nil
	case "external":
		ip, node, _ := strings.Cut(rest, "@")
		addr, err := netip.ParseAddr(ip)
		if err == nil && s.nodes[node] == nil {
			err = fmt.Errorf("unknown node %q", node)
		}
		return place{node: node, door: cni.Uplink, addr: addr}, err
	case "pod":
		ns, name := inNamespace(rest)
		p, err := object[*model.Pod](s.cluster, model.KindPod, ns, name)
		if err != nil {
			return place{}, err
		}
		if s.nodes[p.NodeName] == nil || p.Finished {
			return place{}, fmt.Errorf("pod %s is not running on a node there is", p.ID)
		}
		if p.HostNetwork {
			return s.origin("node:" + p.NodeName)
		}
		return place{node: p.NodeName, door: cni.PodInterface(p.ID), addr: p.IPs[0], addrs: p.IPs}, nil
	}
	return place{}, fmt.Errorf("cannot read %q", text)
}

// first makes the first packet from a place to TO.
func (s *script) first(from place, proto, to string) (packet.Packet, error) {
	p, err := model.ParseProtocol(strings.ToUpper(proto))
	if err != nil {
		return packet.Packet{}, err
	}
	kind, rest, _ := strings.Cut(to, ":")
	var port string
	switch kind {
	case "pod", "service":
		rest, port, _ = strings.Cut(rest, ":")
		ns, name := inNamespace(rest)
		if kind == "pod" {
			end, err := s.origin("pod:" + ns + "/" + name)
			if err != nil {
				return packet.Packet{}, err
			}
			to = end.addr.String()
		} else {
			svc, err := object[*model.Service](s.cluster, model.KindService, ns, name)
			if err != nil {
				return packet.Packet{}, err
			}
			if len(svc.ClusterIPs) == 0 {
				return packet.Packet{}, fmt.Errorf("service %s has no cluster IP", svc.ID)
			}
			to = svc.ClusterIPs[0].String()
		}
		if port != "" {
			to += ":" + port
		}
	}
	if p == model.ICMP {
		addr, err := netip.ParseAddr(to)
		return packet.NewPing(s.speaking(from, addr), addr, 0), err
	}
	dst, err := netip.ParseAddrPort(to)
	return packet.Packet{Src: s.speaking(from, dst.Addr()), Dst: dst.Addr(), Proto: p, DstPort: dst.Port()}.Opening(), err
}

// wanted is what stands after "=>".
type wanted struct {
	verdict            string
	addresses, sources []string // nil: any
}

func want(args []string) (wanted, error) {
	if len(args) < 2 || args[0] != "=>" {
		return wanted{}, fmt.Errorf("want => VERDICT")
	}
	w, rest := wanted{verdict: args[1]}, args[2:]
	if len(rest) > 0 && rest[0] != "from" && rest[0] != "because" {
		w.addresses, rest = strings.Split(rest[0], ","), rest[1:]
	}
	if len(rest) > 1 && rest[0] == "from" {
		w.sources = strings.Split(rest[1], ",")
	}
	return w, nil
}

// Bounds of how often a load balancer is asked until all its choices were seen.
const (
	fewTries  = 3
	manyTries = 400
)

// pkt sends until all expected results were seen; a test cannot choose for a real load balancer.
func (s *script) pkt(args []string) error {
	w, err := want(args[3:])
	if err != nil || w.verdict == "error" {
		return err
	}
	from, err := s.origin(args[0])
	if err != nil {
		return err
	}
	p, err := s.first(from, args[1], args[2])
	if err != nil {
		return err
	}
	if p.Dst.Is6() && s.serves(p.Dst) {
		return nil // services are not translated for IPv6
	}
	if pair := [2]netip.Addr{p.Src, p.Dst}; p.Proto == model.SCTP && p.Src.Is4() && s.config.Services.Renderer.Choice != agent.RendererCNAT {
		if s.streams[pair] {
			return nil
		}
		s.streams[pair] = true
	}
	if s.sticky(p) && len(w.addresses) > 1 {
		return s.sticks(from, p, w)
	}
	verdict, why := "delivered", ""
	var addresses, sources []string
	for try := range manyTries {
		o, err := s.attempt(from, p)
		if err != nil {
			return err
		}
		if o.verdict != "delivered" && verdict != "dropped" { // silence is worse than an error
			verdict, why = o.verdict, o.why
		}
		if o.address != "" {
			addresses, sources = append(addresses, o.address), append(sources, o.source)
		}
		if stray := lacking(addresses, w.addresses); w.addresses != nil && w.verdict == "delivered" && len(stray) > 0 {
			return fmt.Errorf("got to %v, wanted are %v only (%s)", stray, w.addresses, o.why)
		}
		if try+1 >= fewTries && verdict == w.verdict && (w.verdict != "delivered" || len(lacking(w.addresses, addresses)) == 0 && len(lacking(w.sources, sources)) == 0) {
			break
		}
	}
	switch {
	case verdict != w.verdict:
		return fmt.Errorf("want %s, got %s: %s", w.verdict, verdict, why)
	case verdict != "delivered":
		return nil
	case w.addresses != nil && len(lacking(w.addresses, addresses)) > 0:
		return fmt.Errorf("never got to %v", lacking(w.addresses, addresses))
	case w.sources != nil && len(lacking(sources, w.sources))+len(lacking(w.sources, sources)) > 0:
		return fmt.Errorf("seen from %v, wanted is %v", slices.Compact(slices.Sorted(slices.Values(sources))), w.sources)
	}
	return nil
}

// serves reports whether an address is a Service's.
func (s *script) serves(a netip.Addr) bool {
	return slices.ContainsFunc(all[*model.Service](s.cluster), func(svc *model.Service) bool { return slices.Contains(svc.ClusterIPs, a) })
}

// sticky reports whether a packet is for a Service that remembers its clients.
func (s *script) sticky(p packet.Packet) bool {
	return slices.ContainsFunc(all[*model.Service](s.cluster), func(svc *model.Service) bool {
		addrs := slices.Concat(svc.ClusterIPs, svc.ExternalIPs)
		for _, lb := range svc.LoadBalancerIPs {
			addrs = append(addrs, lb.Addr)
		}
		nodePort := s.nodeOf(p.Dst) != "" && slices.ContainsFunc(svc.Ports, func(q model.ServicePort) bool { return q.NodePort == p.DstPort })
		return svc.SessionAffinityTimeout > 0 && (nodePort || slices.Contains(addrs, p.Dst))
	})
}

// sticks asks a Service that remembers its clients: any backend will do, as long as it is the same one.
func (s *script) sticks(from place, p packet.Packet, w wanted) error {
	got := ""
	for range 2 * fewTries {
		o, err := s.attempt(from, p)
		switch {
		case err != nil:
			return err
		case o.verdict != w.verdict || !slices.Contains(w.addresses, o.address):
			return fmt.Errorf("want %s to one of %v, got %s to %s: %s", w.verdict, w.addresses, o.verdict, o.address, o.why)
		case got != "" && got != o.address:
			return fmt.Errorf("got to %s and then to %s, in spite of affinity", got, o.address)
		}
		got = o.address
	}
	return nil
}

// lacking are those of list that are not in the other one.
func lacking(list, other []string) []string {
	var out []string
	for _, x := range list {
		if !slices.Contains(other, x) && !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// connect opens connections until one reaches the backend wanted.
func (s *script) connect(args []string) error {
	from, err := s.origin(args[1])
	if err != nil {
		return err
	}
	p, err := s.first(from, args[2], args[3])
	if err != nil {
		return err
	}
	var last outcome
	for range manyTries {
		o, err := s.attempt(from, p)
		if err != nil {
			return err
		}
		if last = o; o.verdict == "delivered" && (len(args) < 5 || o.address == args[4] || s.sticky(p)) { // no second choice
			s.talks[args[0]] = &standing{from, o}
			return s.still(args[:1])
		}
	}
	return fmt.Errorf("not in %d tries; the last one: %s %s %s", manyTries, last.verdict, last.address, last.why)
}

// still sends the next packet of a connection and the answer.
func (s *script) still(args []string) error {
	t := s.talks[args[0]]
	if t == nil {
		return fmt.Errorf("no connection %q", args[0])
	}
	o, err := s.exchange(t.from, t.sent.both(packet.Packet.GoingOn))
	if err != nil {
		return err
	}
	if o.verdict != "delivered" || o.address != t.address || o.source != t.source {
		return fmt.Errorf("went to %s from %s; now it is %s %s from %s %s", t.address, t.source, o.verdict, o.address, o.source, o.why)
	}
	return nil
}
