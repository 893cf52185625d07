package realvpp

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/test/guestbook"
)

// TestVPPDemo is `make vpp-demo` (docs/demo.md): the guestbook of examples/ as programs on nodes with a real VPP each. It says what it
// tries and what comes of it, and fails if that is not what Kubernetes says.
func TestVPPDemo(t *testing.T) {
	path, d := theVPP(t), &demo{}
	whole := t.Run("guestbook", func(t *testing.T) {
		d.site = openSite(t, path, "../../examples/guestbook")
		d.say("%d nodes, each with VPP %s and an agent; %d pods, each a network namespace", len(d.nodes), d.nodes[0].version(), len(d.hosts)-1-len(d.nodes))
		d.begin()
		d.services()
		d.fromOutside()
		d.policies()
		d.udp()
		d.backend()
		d.agents()
	})
	ran := false
	if !whole || !t.Run("traffic", func(t *testing.T) { ran = true; d.traffic(t, path) }) {
		return // a part has failed, and says why
	}
	d.t = t
	if !ran { // `make sim-test` runs the guestbook alone
		d.compare(firstPart)
		return
	}
	d.say("All %d as said.", d.tried)
	d.compare(func(text string) string { return text })
}

// demo reports its steps on standard output.
type demo struct {
	*site
	tried int
	story strings.Builder
}

func (d *demo) print(format string, args ...any) {
	fmt.Fprintf(io.MultiWriter(os.Stdout, &d.story), format, args...)
}

func (d *demo) say(format string, args ...any) { d.print("\n"+format+"\n", args...) }

// record is the run in the documentation.
const record = "../../docs/demo.txt"

// varies is what differs from run to run.
var varies = regexp.MustCompile(`VPP \S+|\d+ (×|values|refused)|lost \d+ of \d+|gap [^;]+|redis-follower-\d$`)

// firstPart is the record of the guestbook.
func firstPart(recorded string) string {
	text, _, _ := strings.Cut(recorded, "\nTraffic while")
	return text
}

// compare holds the story against the recorded one, or records it if CONTIV_DEMO_RECORD is set.
func (d *demo) compare(part func(recorded string) string) {
	if os.Getenv("CONTIV_DEMO_RECORD") != "" {
		d.check(os.WriteFile(record, []byte(strings.TrimPrefix(d.story.String(), "\n")), 0o644))
		return
	}
	have, err := os.ReadFile(record)
	d.check(err)
	plain := func(text string) []string {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		for i, l := range lines {
			lines[i] = varies.ReplaceAllString(l, "…")
		}
		return lines
	}
	if diff := gocmp.Diff(plain(part(string(have))), plain(d.story.String())); diff != "" {
		d.t.Errorf("docs/demo.txt tells another story (-recorded +now); make vpp-demo RECORD=1 records this one:\n%s", diff)
	}
}

// report prints one attempt: its name, its result, and the reason if that is wrong.
func (d *demo) report(what, came string, wrong error) {
	d.t.Helper()
	d.tried++
	if wrong != nil {
		d.print("  NOT AS SAID  %s: %s: %v\n", what, came, wrong)
		d.t.Fatalf("%s%s: %s: %v", d.tails(), what, came, wrong)
	}
	d.print("  %s: %s\n", what, came)
}

// The pods of the example.
const (
	client    = "guestbook/client"
	dns       = "kube-system/coredns-1"
	frontend0 = "guestbook/frontend-0"
	frontend1 = "guestbook/frontend-1"
)

// silence is how long nobody answers who is not allowed to.
const silence = 2 * time.Second

func (d *demo) begin() {
	d.startPod(dns, "dns redis-leader.guestbook.svc.cluster.local=10.96.0.20 redis-follower.guestbook.svc.cluster.local=10.96.0.21 frontend.guestbook.svc.cluster.local=10.96.0.80")
	d.startPod("guestbook/redis-leader-0", "leader")
	for n := range 2 {
		d.startPod(fmt.Sprintf("guestbook/redis-follower-%d", n), "follower")
	}
	for n := range 3 {
		d.startPod(fmt.Sprintf("guestbook/frontend-%d", n), "frontend")
	}
	self, err := os.Executable()
	d.check(err)
	d.start("web", d.hosts[""], guestbookRole+"=web web "+abroad.server.String()+":8080", self)
	d.start("kube-apiserver", d.nodes[0].ns, guestbookRole+"=kube-apiserver web 192.168.16.1:6443", self)
	began := time.Now()
	for _, n := range d.nodes {
		d.startAgent(n)
	}
	d.acknowledged(began)
	for _, n := range d.nodes {
		st, err := control.FetchStatus(d.t.Context(), d.status(n), false)
		d.check(err)
		d.report("the agent of "+n.node.Name, fmt.Sprintf("in sync, %d values in VPP; uplink %s, overlay %s and pods found by their routes", st.Values, st.Ifs.Uplink, st.Ifs.Overlay), nil)
	}
}

// answers asks until that many said so, and who they were; a request that fails is wrong.
func (d *demo) answers(from, to string, requests int, limit time.Duration) (map[string]int, error) {
	got := map[string]int{}
	for range requests {
		answer, err := d.get(from, to, "/", limit)
		if err != nil {
			return got, err
		}
		got[answer]++
	}
	return got, nil
}

// balanced sees to it that all of some answers come, and no others.
func (d *demo) balanced(what, from, to string, want ...string) {
	d.t.Helper()
	const requests, most = 30, 10
	d.until(what, func() error { _, err := d.get(from, to, "/", silence); return err }) // programs start, routers are asked for
	total := map[string]int{}
	for range most {
		got, err := d.answers(from, to, requests, patience)
		if err != nil {
			d.report(what, count(total), err)
		}
		for k, n := range got {
			total[k] += n
		}
		if len(total) >= len(want) {
			break
		}
	}
	var wrong error
	if got := slices.Sorted(maps.Keys(total)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		wrong = fmt.Errorf("want all of %q", want)
	}
	d.report(what, count(total), wrong)
}

func count(answers map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(answers)) {
		out = append(out, fmt.Sprintf("%d × %s", answers[k], k))
	}
	return strings.Join(out, ", ")
}

// silent sees to it that nobody answers.
func (d *demo) silent(what, from, network, to string) {
	d.t.Helper()
	conn, err := d.dial(from, network, to, silence)
	if err == nil {
		conn.Close()
		d.report(what, "connected", errors.New("nobody was to answer"))
	}
	var late net.Error
	if !errors.As(err, &late) || !late.Timeout() {
		d.report(what, "an answer", err)
	}
	d.report(what, "no answer", nil)
}

// refused checks that the request returns an error at once.
func (d *demo) refused(what, from, to string) {
	d.t.Helper()
	came := ""
	d.until(what, func() error {
		conn, err := d.dial(from, "tcp", to, silence)
		if err == nil {
			conn.Close()
			d.report(what, "connected", errors.New("it was to be refused"))
		}
		var e syscall.Errno
		if !errors.As(err, &e) || e != syscall.EHOSTUNREACH && e != syscall.ECONNREFUSED {
			return err
		}
		came = e.Error()
		return nil
	})
	d.report(what, came, nil)
}

// redis asks a database once.
func (d *demo) redis(what, from, to, line, want string) {
	d.t.Helper()
	conn, err := d.dial(from, "tcp", to, patience)
	if err != nil {
		d.report(what, "no connection", err)
	}
	defer conn.Close()
	d.asks(what, conn, line, want)
}

func (d *demo) asks(what string, conn net.Conn, line, want string) {
	d.t.Helper()
	got, err := guestbook.Command(conn, line)
	if err == nil && strings.Join(got, "|") != want {
		err = fmt.Errorf("want %q", want)
	}
	d.report(what, fmt.Sprintf("%q", strings.Join(got, "|")), err)
}

func (d *demo) services() {
	d.say("Services, from pods")
	for _, network := range []string{"udp", "tcp"} {
		addr := ""
		d.until("resolve by "+network, func() (err error) {
			addr, err = d.resolve(client, network, "frontend.guestbook.svc.cluster.local", silence)
			return err
		})
		var wrong error
		if addr != "10.96.0.80" {
			wrong = errors.New("want 10.96.0.80")
		}
		d.report("client asks kube-dns 10.96.0.10:53/"+network+" (on node-2) for frontend", addr, wrong)
	}
	d.balanced("client → frontend 10.96.0.80:80", client, "10.96.0.80:80",
		"frontend-0 sees 10.1.1.4", "frontend-1 sees 10.1.1.4", "frontend-2 sees 10.1.1.4")

	signed := ""
	d.until("sign the book", func() (err error) {
		signed, err = d.get(client, "10.96.0.80:80", "/sign?entry=hello", patience)
		return err
	})
	d.report("client signs the book: frontend → kube-dns → redis-leader 10.96.0.20:6379", signed, nil)
	read := ""
	d.until("read the book", func() (err error) {
		if read, err = d.get(client, "10.96.0.80:80", "/book", patience); err == nil && !strings.Contains(read, "hello") {
			err = fmt.Errorf("the book has %q", read)
		}
		return err
	})
	d.report("client reads it: frontend → kube-dns → redis-follower 10.96.0.21:6379, which follows the leader", read, nil)

	who := map[string]int{}
	for range 20 {
		conn, err := d.dial(client, "tcp", "10.96.0.21:6379", patience)
		if err != nil {
			d.report("client → redis-follower", "", err)
		}
		got, err := guestbook.Command(conn, "PING")
		conn.Close()
		if err != nil {
			d.report("client → redis-follower", "", err)
		}
		who[strings.Join(got, " ")]++
	}
	var wrong error
	if len(who) != 1 {
		wrong = errors.New("want one and the same")
	}
	d.report("client → redis-follower 10.96.0.21:6379, session affinity", count(who), wrong)
	d.balanced("frontend-0 → frontend 10.96.0.80:80, itself included", frontend0, "10.96.0.80:80",
		"frontend-0 sees 10.1.1.254", "frontend-1 sees 10.1.1.2", "frontend-2 sees 10.1.1.2")
	d.balanced("client → kubernetes 10.96.0.1:443, on node-1 itself", client, "10.96.0.1:443", "kube-apiserver sees 10.1.1.4")
	d.balanced("frontend-1 → kubernetes 10.96.0.1:443, from node-2", frontend1, "10.96.0.1:443", "kube-apiserver sees 10.1.2.2")
	d.balanced("node-1 itself, as a kubelet, → the pod frontend-0 10.1.1.2:8080", "node-1", "10.1.1.2:8080", "frontend-0 sees 169.254.1.2")
	d.refused("client → admin 10.96.0.30:80, a service without endpoints", client, "10.96.0.30:80")
	d.refused("client → frontend 10.96.0.80:81, a port it does not have", client, "10.96.0.80:81")
	d.balanced("client → a server outside, 198.51.100.10:8080", client, abroad.server.String()+":8080", "web sees 192.168.16.1")
}

func (d *demo) fromOutside() {
	d.say("Services, from outside (198.51.100.7)")
	d.check(d.hosts[""].ip("route add 203.0.113.80/32 via 192.168.16.1\n")) // as a load balancer would
	d.balanced("node port 192.168.16.2:30080, traffic policy Cluster", "", "192.168.16.2:30080",
		"frontend-0 sees 10.1.2.254", "frontend-1 sees 10.1.2.254", "frontend-2 sees 10.1.2.254")
	d.balanced("node port 192.168.16.2:30081, traffic policy Local", "", "192.168.16.2:30081", "frontend-1 sees 198.51.100.7")
	d.balanced("load balancer 203.0.113.80:80, routed to node-1", "", "203.0.113.80:80", "frontend-0 sees 10.1.1.254", "frontend-1 sees 10.1.1.254", "frontend-2 sees 10.1.1.254")
}

func (d *demo) policies() {
	d.say("A policy: only pods of guestbook may speak to redis")
	const file, leader, direct = "50-policies.yaml", "10.96.0.20:6379", "10.1.1.3:6379"
	d.redis("client → redis-leader "+leader, client, leader, "PING", "PONG redis-leader-0")
	d.silent("coredns-1 of kube-system → redis-leader "+leader, dns, "tcp", leader)
	d.silent("coredns-1 → the pod itself, "+direct, dns, "tcp", direct)

	text, since := d.read(file), time.Now()
	d.write(file, "")
	d.acknowledged(since)
	d.report("the policy is removed", "all agents have programmed their VPP", nil)
	good, err := d.dial(client, "tcp", leader, patience)
	d.check(err)
	defer good.Close()
	bad, err := d.dial(dns, "tcp", leader, patience)
	if err != nil {
		d.report("coredns-1 → redis-leader "+leader, "", err)
	}
	defer bad.Close()
	d.asks("coredns-1 → redis-leader "+leader, bad, "PING", "PONG redis-leader-0")

	since = time.Now()
	d.write(file, text)
	d.acknowledged(since)
	d.report("the policy is there again", "all agents have programmed their VPP", nil)
	d.asks("client's connection from before", good, "PING", "PONG redis-leader-0")
	if got, err := guestbook.Command(bad, "PING"); err == nil {
		d.report("coredns-1's connection from before", strings.Join(got, "|"), errors.New("it was to end"))
	}
	d.report("coredns-1's connection from before", "no answer any more", nil)
	d.silent("coredns-1 → redis-leader "+leader, dns, "tcp", leader)
}

const tcpOnly = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: tcp-only, namespace: guestbook}
spec:
  podSelector: {matchLabels: {app: client}}
  policyTypes: [Egress]
  egress:
  - ports: [{protocol: TCP, port: 53}, {protocol: TCP, port: 8080}]
`

func (d *demo) udp() {
	d.say("A policy for what leaves a pod: client may use TCP at ports 53 and 8080 only")
	since := time.Now()
	d.write("60-tcp-only.yaml", tcpOnly)
	d.acknowledged(since, "node-1")
	const name = "frontend.guestbook.svc.cluster.local"
	addr, err := d.resolve(client, "tcp", name, patience)
	d.report("client asks kube-dns by TCP", addr, err)
	var late *net.DNSError
	if addr, err = d.resolve(client, "udp", name, silence); !errors.As(err, &late) || !late.IsTimeout {
		d.report("client asks kube-dns by UDP", addr, fmt.Errorf("nobody was to answer: %w", err))
	}
	d.report("client asks kube-dns by UDP", "no answer", nil)
	d.silent("client → redis-leader 10.96.0.20:6379", client, "tcp", "10.96.0.20:6379")
	d.balanced("client → frontend 10.96.0.80:80, whose pods listen at 8080", client, "10.96.0.80:80",
		"frontend-0 sees 10.1.1.4", "frontend-1 sees 10.1.1.4", "frontend-2 sees 10.1.1.4")
	since = time.Now()
	d.write("60-tcp-only.yaml", "")
	d.acknowledged(since, "node-1")
	addr, err = d.resolve(client, "udp", name, patience)
	d.report("without the policy, client asks kube-dns by UDP", addr, err)
}

func (d *demo) backend() {
	d.say("A backend dies: frontend-1 on node-2")
	const file, was, is = "30-frontend.yaml", "  - 10.1.2.2\n  conditions:\n    ready: true", "  - 10.1.2.2\n  conditions:\n    ready: false"
	d.kill(frontend1)
	failed := 0
	for range 60 {
		if _, err := d.get(client, "10.96.0.80:80", "/", patience); err != nil {
			failed++
		}
	}
	var wrong error
	if failed == 0 {
		wrong = errors.New("some were to meet nobody")
	}
	d.report("60 requests before Kubernetes knows", fmt.Sprintf("%d refused by the pod nobody listens in", failed), wrong)
	text, since := d.read(file), time.Now()
	if !strings.Contains(text, was) {
		d.t.Fatalf("%s has changed", file)
	}
	d.write(file, strings.ReplaceAll(text, was, is))
	d.acknowledged(since)
	d.report("its endpoint is not ready", "all agents have programmed their VPP", nil)
	d.balanced("client → frontend 10.96.0.80:80", client, "10.96.0.80:80", "frontend-0 sees 10.1.1.4", "frontend-2 sees 10.1.1.4")
	d.startPod(frontend1, "frontend")
	d.until("frontend-1 listens again", func() error { _, err := d.get(client, "10.1.2.2:8080", "/", silence); return err })
	since = time.Now()
	d.write(file, text)
	d.acknowledged(since)
	d.report("it is started again, and ready", "all agents have programmed their VPP", nil)
	d.balanced("client → frontend 10.96.0.80:80", client, "10.96.0.80:80",
		"frontend-0 sees 10.1.1.4", "frontend-1 sees 10.1.1.4", "frontend-2 sees 10.1.1.4")
}

func (d *demo) agents() {
	d.say("The agents are killed and started again")
	held, err := d.dial(client, "tcp", "10.96.0.20:6379", patience)
	d.check(err)
	defer held.Close()
	for _, n := range d.nodes {
		d.kill(n.node.Name)
	}
	d.balanced("without agents, client → frontend 10.96.0.80:80", client, "10.96.0.80:80",
		"frontend-0 sees 10.1.1.4", "frontend-1 sees 10.1.1.4", "frontend-2 sees 10.1.1.4")
	since := time.Now()
	for _, n := range d.nodes {
		d.startAgent(n)
	}
	d.acknowledged(since)
	writes := 0
	for _, n := range d.nodes {
		st, err := control.FetchStatus(d.t.Context(), d.status(n), true)
		d.check(err)
		for _, txn := range st.History {
			writes += txn.Writes
		}
	}
	var wrong error
	if writes > 0 {
		wrong = errors.New("nothing was to be written")
	}
	d.report("they find VPP as it should be", fmt.Sprintf("%d writes", writes), wrong)
	d.asks("a connection to redis-leader from before", held, "PING", "PONG redis-leader-0")
}
