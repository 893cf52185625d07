package nic

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace runs f on a thread in a separate network namespace.
func namespace(t *testing.T, f func()) {
	missing := make(chan error, 1)
	go func() {
		defer close(missing)
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			missing <- err
			return
		}
		f()
	}()
	if err := <-missing; err != nil {
		t.Skipf("needs root: make a network namespace: %v", err)
	}
}

func ip(t *testing.T, batch string) {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("ip: %v: %s", err, out)
	}
}

// shown are the addresses, routes and settings of the namespace, but for those that the kernel makes.
func shown(t *testing.T) string {
	var lines []string
	for _, args := range [][]string{{"-o", "addr", "show", "scope", "global"}, {"route"}, {"-6", "route"}} {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			t.Errorf("ip %v: %v: %s", args, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if fields := strings.Fields(line); !strings.Contains(line, "fe80::") {
				lines = append(lines, strings.Join(slices.DeleteFunc(fields, func(s string) bool { return strings.HasSuffix(s, ":") || s == "linkdown" || s == "nodad" }), " "))
			}
		}
	}
	for _, link := range []string{"eth0", "contiv-nic"} {
		out, err := exec.Command("ip", "-o", "link", "show", link).CombinedOutput()
		lines = append(lines, fmt.Sprint(link, " promiscuous ", strings.Contains(string(out), "PROMISC"), err))
		s, err := readSettings(link)
		lines = append(lines, fmt.Sprint(link, s, err))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

const setup = `link add eth0 type veth peer name far
link add contiv-nic type veth peer name cv-nic
link set eth0 up
link set far up
link set contiv-nic up
link set cv-nic up
addr add 192.168.16.1/24 brd 192.168.16.255 dev eth0
addr add 192.168.16.7/24 dev eth0
addr add 2001:db8:16::1/64 dev eth0 nodad
route add 10.9.0.0/16 dev eth0 src 192.168.16.7 metric 50
route add default via 192.168.16.100 metric 100
route add 198.51.100.0/24 via 192.168.16.100 mtu 1400
route add 0.0.0.0/1 via 192.168.16.100
route add default via 2001:db8:16::100
`

// TestInAContainer: /proc/sys is read-only, and the manifests of deploy mount a part of the node's.
func TestInAContainer(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"proc", HostSettings} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n := &NIC{Name: "eth0", Link: "contiv-nic"}
	namespace(t, func() {
		ip(t, setup)
		record, err := n.Look()
		sys := filepath.Join(root, "proc/sys")
		err = errors.Join(err, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("/proc", filepath.Join(root, "proc"), "", unix.MS_BIND, ""), unix.Mount(sys, sys, "", unix.MS_BIND, ""), unix.Mount("", sys, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
			unix.Mount("/proc/sys/net", filepath.Join(root, HostSettings), "", unix.MS_BIND, ""), unix.Chroot(root), unix.Chdir("/"))
		if err != nil {
			t.Error(err)
			return
		}
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/eth0/arp_ignore", []byte("0"), 0); !errors.Is(err, unix.EROFS) {
			t.Errorf("/proc/sys is not read-only: %v", err)
		}
		before, err := readSettings("eth0")
		if err = errors.Join(err, n.Deafen(), n.Take(record)); err != nil {
			t.Error(err)
		}
		if now, err := readSettings("eth0"); err != nil || now != deaf || !n.Holds(record) {
			t.Errorf("taken: %+v, %v", now, err)
		}
		if err := n.Release(record); err != nil {
			t.Error(err)
		}
		if now, err := readSettings("eth0"); err != nil || now != before || n.Holds(record) {
			t.Errorf("released: %+v, %v; before %+v", now, err, before)
		}
	})
}

// TestMove: the link gets everything, the NIC gets it back, and each step may be repeated, or have been done in part.
func TestMove(t *testing.T) {
	n := &NIC{Name: "eth0", Link: "contiv-nic"}
	namespace(t, func() {
		ip(t, setup)
		before := shown(t)
		record, err := n.Look()
		if err != nil {
			t.Error(err)
			return
		}
		if n.Holds(record) || n.Holds(nil) {
			t.Error("the link has the addresses before Take")
		}
		for range 2 {
			if err := n.Take(record); err != nil {
				t.Error(err)
			}
		}
		taken := shown(t)
		for _, want := range []string{
			"contiv-nic inet 192.168.16.1/24 brd 192.168.16.255 scope global contiv-nic", "contiv-nic inet6 2001:db8:16::1/64", "default via 192.168.16.100 dev contiv-nic metric 100",
			"10.9.0.0/16 dev contiv-nic scope link src 192.168.16.7 metric 50", "198.51.100.0/24 via 192.168.16.100 dev contiv-nic mtu 1400", "0.0.0.0/1 via 192.168.16.100 dev contiv-nic", "default via 2001:db8:16::100 dev contiv-nic", "eth0{1 8 1}",
			"eth0 promiscuous true", // else it drops frames for VPP's own MAC address
		} {
			if !strings.Contains(taken, want) {
				t.Errorf("no %q in\n%s", want, taken)
			}
		}
		if strings.Contains(taken, "dev eth0") || !n.Holds(record) || !n.Holds(nil) {
			t.Errorf("eth0 still has something:\n%s", taken)
		}
		ip(t, "addr add 192.168.16.1/24 brd 192.168.16.255 dev eth0\nroute replace default via 192.168.16.100 dev eth0 metric 100 onlink\n") // of a Release that was killed
		for range 2 {
			if err := n.Release(record); err != nil {
				t.Error(err)
			}
		}
		if after := strings.Replace(shown(t), "contiv-nic{1 8 1}", "contiv-nic{0 0 0}", 1); after != strings.ReplaceAll(before, "contiv-nic{2", "contiv-nic{0") {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		ip(t, "link del contiv-nic\n")
		if err := n.Release(record); err != nil || n.Holds(record) {
			t.Errorf("without the link: %v", err)
		}
		ip(t, "link set eth0 promisc on\n") // of a program of the node
		record, err = n.Look()
		if err = errors.Join(err, n.Release(record)); err != nil || !strings.Contains(shown(t), "eth0 promiscuous true") {
			t.Errorf("a NIC that was promiscuous before: %v\n%s", err, shown(t))
		}
	})
}

// TestRefusesRoutes: a NIC whose routes cannot be moved stays as it is.
func TestRefusesRoutes(t *testing.T) {
	for _, c := range []struct{ batch, text string }{
		{"link add eth0 type veth peer name far\nlink set eth0 up\nlink set far up\n", "it has no address"},
		{setup + "route add 10.8.0.0/16 via 192.168.16.100 table 77\n", "in table 77 cannot be moved"},
		{setup + "route add 10.8.0.0/16 nexthop via 192.168.16.100 nexthop via 192.168.16.101\n", "several next hops"},
		{setup + "route add unreachable 10.8.0.0/16\n", ""},
	} {
		namespace(t, func() {
			ip(t, c.batch)
			_, err := (&NIC{Name: "eth0", Link: "contiv-nic"}).Look()
			if (err == nil) != (c.text == "") || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v", c.batch, err)
			}
		})
	}
	if _, err := (&NIC{Name: "nothing"}).Look(); err == nil {
		t.Error("a NIC that does not exist")
	}
}
