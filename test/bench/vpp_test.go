package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// realVPP is the binary to measure with as well; "": none.
func realVPP() string { return os.Getenv("CONTIV_VPP") }

// startVPP starts a real VPP with the interfaces every node has, as loopbacks: no packet is sent here. Pods have none, which
// spares the agent and the bare side the same messages.
func startVPP(tb testing.TB) (dialer, func()) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "contiv") // VPP takes the name of a benchmark for two words
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "api.sock")
	cmd := exec.Command(realVPP(),
		"unix", "{", "nodaemon", "cli-listen", dir+"/cli.sock", "runtime-dir", dir, "log", dir+"/vpp.log", "poll-sleep-usec", "50", "}",
		"api-segment", "{", "prefix", fmt.Sprintf("contivbench%d", time.Now().UnixNano()), "global-size", "64M", "api-size", "16M", "}",
		"socksvr", "{", "socket-name", path, "}",
		"statseg", "{", "socket-name", dir+"/stats.sock", "size", "64M", "page-size", "4k", "}",
		"memory", "{", "main-heap-size", "1G", "main-heap-page-size", "4k", "}",
		"buffers", "{", "buffers-per-numa", "16384", "page-size", "4k", "}",
		"plugins", "{", "plugin", "default", "{", "disable", "}", "plugin", "nat_plugin.so", "{", "enable", "}",
		"plugin", "acl_plugin.so", "{", "enable", "}", "}",
	)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		tb.Fatalf("CONTIV_VPP: %v", err)
	}
	stop := func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			break
		}
		if time.Now().After(end) {
			stop()
			tb.Fatalf("vpp opens no API socket:\n%s", &out)
		}
	}
	plumbVPP(tb, socket(path))
	return socket(path), stop
}

// plumbVPP makes what sim/cni makes, as far as the agent needs it.
func plumbVPP(tb testing.TB, dial dialer) {
	tb.Helper()
	conn := dialBare(tb, dial)
	defer conn.stop()
	if b, ok := tb.(*testing.B); ok && b.Name() == "BenchmarkFirstSync" {
		fmt.Printf("vpp: %s\n", conn.State().Version) // a configuration line of the benchmark format
	}
	one := func(m api.Message) api.Message {
		r := conn.Do(tb.Context(), vpp.Call{Msg: m})[0]
		if r.Err != nil {
			tb.Fatalf("%s: %v", m.GetMessageName(), r.Err)
		}
		return r.Msg
	}
	loopback := func(instance uint32) interface_types.InterfaceIndex {
		i := one(&interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: instance}).(*interfaces.CreateLoopbackInstanceReply).SwIfIndex
		one(&interfaces.SwInterfaceSetFlags{SwIfIndex: i, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP})
		return i
	}
	gateway := loopback(0)
	one(&interfaces.SwInterfaceAddDelAddress{SwIfIndex: gateway, IsAdd: true, Prefix: ip_types.AddressWithPrefix{
		Address: ip_types.NewAddress([]byte{169, 254, 1, 1}), Len: 32,
	}})
	for n, name := range []string{cni.Uplink, cni.Overlay, cni.Host} {
		i := loopback(uint32(100 + n))
		one(&interfaces.SwInterfaceSetInterfaceName{SwIfIndex: i, Name: name})
		one(&interfaces.SwInterfaceSetUnnumbered{SwIfIndex: gateway, UnnumberedSwIfIndex: i, IsAdd: true})
	}
}
