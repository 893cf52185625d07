package realvpp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/test/startup"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// theVPP is the binary to test with; the test is skipped, with what is missing, if it cannot run here.
func theVPP(t testing.TB) string {
	t.Helper()
	path := os.Getenv("CONTIV_VPP")
	if path == "" {
		t.Skip("CONTIV_VPP is not set: point it at a vpp binary (24.06 to 26.06, with the nat, acl, cnat, af_packet and vxlan plugins)")
	}
	if path == simulatedVPP {
		path = theAgent(t)
	} else if _, err := exec.LookPath(path); err != nil {
		t.Skipf("CONTIV_VPP: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces, veth pairs and packet sockets")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("needs the ip command (iproute2): %v", err)
	}
	return path
}

// realVPP is theVPP for a test that the simulated VPP cannot serve. docs/testing.md has the same reason.
func realVPP(t *testing.T, why string) string {
	t.Helper()
	if os.Getenv("CONTIV_VPP") == simulatedVPP {
		t.Skip("not on the simulated VPP: " + why)
	}
	return theVPP(t)
}

// simulatedVPP is the value of CONTIV_VPP that stands for the simulated VPP: a process of contiv-agent with host interfaces.
const simulatedVPP = "sim"

// programs is the folder of theAgent, which TestMain removes.
var programs string

// theAgent is contiv-agent, built once.
func theAgent(t testing.TB) string {
	t.Helper()
	path, err := buildAgent()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var buildAgent = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programs, "contiv-agent")
	if out, err := exec.Command("go", "build", "-tags", "grpcnotrace", "-ldflags=-w", "-o", path, "../../cmd/contiv-agent").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the agent: %w\n%s", err, out)
	}
	return path, nil
})

// isSimulated reports that a path is not that of a real VPP.
func isSimulated(path string) bool { return filepath.Dir(path) == programs }

// newerCNAT reports that VPP has cnat's API 1.0.0 (from 26.06 on), which the simulated VPP does not have.
func (l *lab) newerCNAT() bool { return l.version() >= "26.06" }

// isNewerVPP reports that the binary is 26.02 or later: older ones do not know the flag.
func isNewerVPP(path string) bool {
	said, err := exec.Command(path, "--version").Output()
	return err == nil && strings.HasPrefix(string(said), "vpp v") && string(said) >= "vpp v26.02"
}

// epollLibrary is deploy/vpp/epoll.c as a library; the test is skipped without a C compiler.
func epollLibrary(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skipf("VPP 25.06 and later need deploy/vpp/epoll.c for so many interfaces: %v", err)
	}
	path := filepath.Join(t.TempDir(), "epoll.so")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", path, "../../deploy/vpp/epoll.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// needOlderCNAT skips a test of what the simulated plugin does, which is VPP's up to 25.10.
func needOlderCNAT(t *testing.T, w *twin) {
	t.Helper()
	if w.lab.newerCNAT() {
		t.Skipf("the simulated cnat is that of VPP 24.06 to 25.10, and this is %s", w.lab.version())
	}
}

// startTimeout is how long VPP may take to open its sockets.
const startTimeout = time.Minute

// process is one running VPP.
type process struct {
	path      string
	plugins   []string // beside those every test needs
	workers   int      // threads that forward; 0: the main thread does
	simulated []string // arguments of a simulated VPP alone
	preload   string   // a library that its process loads before all others; "": none
	commands  string   // of its command line, which it executes when it starts
	dir       string
	ns        *netns
	cmd       *exec.Cmd
	dead      chan struct{}
	err       error // why it ended; read after dead is closed
}

func (p *process) socket() string { return filepath.Join(p.dir, startup.API) }

// start begins a life of VPP: no hugepages, no NIC, nothing outside dir.
func (p *process) start() error {
	p.dead = make(chan struct{})
	_ = os.Remove(p.socket()) // of a former life
	args := startup.VPP(p.dir, p.workers, p.plugins...)
	if isSimulated(p.path) {
		args = append(startup.Simulated(p.dir), p.simulated...)
	}
	if p.commands != "" {
		file := filepath.Join(p.dir, "startup.cli")
		if err := os.WriteFile(file, []byte(p.commands), 0o600); err != nil {
			return err
		}
		args = append(args, "unix", "{", "exec", file, "}")
	}
	out, err := os.OpenFile(filepath.Join(p.dir, "vpp.out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	p.ns.do(func() {
		p.cmd = exec.Command(p.path, args...)
		p.cmd.Stdout, p.cmd.Stderr = out, out
		if p.preload != "" {
			p.cmd.Env = append(os.Environ(), "LD_PRELOAD="+p.preload)
		}
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // when the namespace's thread ends
		err = p.cmd.Start()
	})
	if err != nil {
		return err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.dead)
	}()
	return p.opened()
}

func (p *process) opened() error {
	end := time.Now().Add(startTimeout)
	for {
		if _, err := os.Stat(p.socket()); err == nil {
			return nil
		}
		select {
		case <-p.dead:
			return fmt.Errorf("vpp ended while starting: %w\n%s", p.err, p.output())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("vpp opened no API socket within %s\n%s", startTimeout, p.output())
		}
	}
}

// output is what VPP had to say.
func (p *process) output() string {
	b, _ := os.ReadFile(filepath.Join(p.dir, "vpp.out")) // no output is no output
	return string(b)
}

// alive is why VPP is no longer there; nil: it is.
func (p *process) alive() error {
	if _, err := os.Stat(p.socket()); err != nil {
		return fmt.Errorf("vpp has lost its API socket: %w", err)
	}
	select {
	case <-p.dead:
		return fmt.Errorf("vpp died: %w\n%s", p.err, p.output())
	case <-time.After(100 * time.Millisecond): // it may be about to
		return nil
	}
}

// kill ends VPP as a crash would.
func (p *process) kill() {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may be dead already
	<-p.dead
}

// plain is a connection to VPP's API, tried until VPP answers.
func plain(cfg vpp.Config) *plainConn {
	c := &plainConn{up: make(chan struct{}, 1)}
	cfg.ClientName = "plumber"
	cfg.OnState = func(st vpp.State) {
		if st.Connected {
			select {
			case c.up <- struct{}{}:
			default:
			}
		}
	}
	c.conn = vpp.New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.ended = stop, make(chan struct{})
	go func() {
		defer close(c.ended)
		_ = c.conn.Run(ctx) // ends by stop
	}()
	return c
}

// plainConn configures VPP as a CNI would: beside the agent.
type plainConn struct {
	conn  *vpp.Conn
	up    chan struct{}
	stop  context.CancelFunc
	ended chan struct{}
}

func (c *plainConn) wait() error {
	if c.conn.State().Connected {
		return nil
	}
	select {
	case <-c.up:
		return nil
	case <-time.After(startTimeout):
		return errors.Join(errors.New("no connection to vpp"), c.conn.State().Err)
	}
}

func (c *plainConn) close() {
	c.stop()
	<-c.ended
}
