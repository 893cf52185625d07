package realvpp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/doctor"
	"github.com/contiv-agent/contiv-agent/vpp"

	"go.fd.io/govpp/binapi/vlib"
)

// patient runs a VPP with a startup.conf, whose paths are moved to a folder of the test's, and gives that folder.
func patient(t *testing.T, conf string) string {
	t.Helper()
	bin := theVPP(t)
	dir, err := os.MkdirTemp("", "vpp") // a short path: it becomes a socket's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	conf = strings.NewReplacer("/run/vpp", dir, "/var/log/vpp", dir, "nodaemon", "nodaemon\n  poll-sleep-usec 100").Replace(conf)
	conf += fmt.Sprintf("\napi-segment { prefix doctor%d }\n", time.Now().UnixNano())
	file := filepath.Join(dir, "startup.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{path: bin, dir: dir, dead: make(chan struct{}), cmd: exec.Command(bin, "-c", file)}
	out, err := os.Create(filepath.Join(dir, "vpp.out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.dead)
	}()
	t.Cleanup(p.kill)
	if err := p.opened(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func examine(t *testing.T, dir string) *doctor.Report {
	t.Helper()
	cfg := doctor.Config{Socket: filepath.Join(dir, "api.sock"), Stats: filepath.Join(dir, "stats.sock"), Timeout: startTimeout}
	var err error
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var r *doctor.Report
		if r, err = doctor.Examine(t.Context(), cfg); err == nil {
			return r
		}
	}
	t.Fatal(err)
	return nil
}

// verdicts are those of a report that are not ok.
func verdicts(r *doctor.Report) map[string]doctor.Verdict {
	out := map[string]doctor.Verdict{}
	for _, c := range r.Checks {
		if c.Verdict != doctor.OK {
			out[c.Name] = c.Verdict
		}
	}
	delete(out, "host link") // a note: these doctors are given none
	return out
}

// TestVPPDoctorLikesOurStartup starts a VPP with the startup.conf of deploy: nothing is wrong with it, and nothing unknown.
func TestVPPDoctorLikesOurStartup(t *testing.T) {
	conf, err := os.ReadFile("../../deploy/vpp/startup.conf")
	if err != nil {
		t.Fatal(err)
	}
	text := string(conf)
	newer := isNewerVPP(realVPP(t, "starts VPP with a startup.conf"))
	if newer {
		before, rest, _ := strings.Cut(text, "\ncnat {")
		_, after, _ := strings.Cut(rest, "\n}\n")
		text = before + "\n" + after // as the file says
	}
	r := examine(t, patient(t, text))
	got := verdicts(r)
	if v := got["api trace"]; v != doctor.Note {
		t.Errorf("api trace is %q, want a note: it is on", v)
	}
	delete(got, "api trace")
	if v := got["cnat_plugin.so"]; newer != (v == doctor.Note) {
		t.Errorf("cnat is %q, want a note of VPP 26.06 alone", v)
	}
	delete(got, "cnat_plugin.so")
	if len(got) > 0 || !r.Well() {
		t.Errorf("worst %s: %v", r.Worst, got)
	}
}

// poor is a startup.conf with everything wrong that doctor knows how to find before anybody configured anything.
const poor = `
unix { nodaemon runtime-dir /run/vpp cli-listen /run/vpp/cli.sock }
socksvr { socket-name /run/vpp/api.sock }
statseg { socket-name /run/vpp/elsewhere.sock }
memory { main-heap-size 512M main-heap-page-size 4k }
buffers { buffers-per-numa 16384 page-size 4k }
plugins { plugin default { disable } plugin nat_plugin.so { enable } plugin acl_plugin.so { enable } }
`

// TestVPPDoctorFinds lets a VPP become worse, and says what mends it; then does that, and finds it mended.
func TestVPPDoctorFinds(t *testing.T) {
	realVPP(t, "starts VPP with a startup.conf")
	dir := patient(t, poor)
	r := examine(t, dir)
	want := map[string]doctor.Verdict{
		"main heap": doctor.Wrong, "stats segment": doctor.Wrong, "stats socket": doctor.Missing, "acl reclassify": doctor.Dangerous,
		"cnat_plugin.so": doctor.Note, "af_packet_plugin.so": doctor.Note, "memif_plugin.so": doctor.Note, "vxlan_plugin.so": doctor.Note,
		"abf_plugin.so": doctor.Note,
	}
	if isNewerVPP(theVPP(t)) {
		want["tap_plugin.so"] = doctor.Note
	}
	alikeVerdicts(t, "a poor start", verdicts(r), want)

	c := plain(vpp.Config{Socket: filepath.Join(dir, "api.sock")})
	defer c.close()
	if err := c.wait(); err != nil {
		t.Fatal(err)
	}
	say := func(commands ...string) {
		t.Helper()
		for _, cmd := range commands {
			reply := c.conn.Do(t.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: cmd}})[0]
			if m, ok := reply.Msg.(*vlib.CliInbandReply); reply.Err != nil || !ok || strings.Contains(m.Reply, "unknown input") {
				t.Fatalf("%s: %v %v", cmd, reply.Msg, reply.Err)
			}
		}
	}
	say("create loopback interface", "nat44 plugin enable sessions 1000", "set interface nat44 in loop0", "api trace on",
		"nat44 add load-balancing static mapping protocol tcp external 10.96.0.1:80 local 10.0.0.1:80 probability 200 local 10.0.0.2:80 probability 56 out2in-only")
	want["nat44"], want["nat44 interfaces"], want["api trace"] = doctor.Dangerous, doctor.Dangerous, doctor.Note
	want["nat44 mappings"], want["nat44 weights"] = doctor.Note, doctor.Dangerous
	r = examine(t, dir)
	alikeVerdicts(t, "worse", verdicts(r), want)

	for _, check := range r.Checks {
		if cmd, ok := strings.CutPrefix(check.Command, "vppctl "); ok {
			say(cmd)
			want[check.Name] = doctor.OK
		}
	}
	say("nat44 add load-balancing static mapping protocol tcp external 10.96.0.1:80 local 10.0.0.1:80 probability 200 local 10.0.0.2:80 probability 56 out2in-only del")
	want["nat44"] = doctor.Wrong // the table is as small as it was
	want["nat44 weights"], want["nat44 mappings"] = doctor.OK, doctor.OK
	alikeVerdicts(t, "mended", verdicts(examine(t, dir)), want)
}

func alikeVerdicts(t *testing.T, when string, got, want map[string]doctor.Verdict) {
	t.Helper()
	var diff []string
	for name, v := range want {
		if got[name] != v && !(v == doctor.OK && got[name] == "") {
			diff = append(diff, fmt.Sprintf("%s: %q, want %q", name, got[name], v))
		}
	}
	for name, v := range got {
		if want[name] == "" {
			diff = append(diff, fmt.Sprintf("%s: %q, want ok", name, v))
		}
	}
	slices.Sort(diff)
	for _, d := range diff {
		t.Errorf("%s: %s", when, d)
	}
}
