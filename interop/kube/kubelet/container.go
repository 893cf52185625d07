package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// container is one container of a Pod: a process that is started again.
type container struct {
	w    *worker
	spec *corev1.Container

	mu       sync.Mutex
	state    corev1.ContainerState // its zero value: not yet begun
	last     corev1.ContainerState // of the former life
	restarts int32
	id       string // of this life
	started  bool   // its startup probe has succeeded
	ready    bool
	logs     *journal // of this life
	before   *journal // of the former life; nil: none
	kill     func()   // ends this life, with grace; nil: none
}

// Back-off of restarts, as a kubelet's: the first is at once.
const (
	firstBackOff = 10 * time.Second
	maxBackOff   = 5 * time.Minute
	calmAfter    = 10 * time.Minute // of a life, the back-off begins anew
)

func newContainer(w *worker, spec *corev1.Container, restarts int32) *container {
	return &container{w: w, spec: spec, restarts: restarts, logs: newJournal()}
}

// errConfig marks a container that cannot be started as the Pod describes it.
var errConfig = errors.New("configuration")

// run lets the container live, again and again if the policy wants it. It reports whether the last life ended with exit code 0.
func (c *container) run(ctx context.Context, policy corev1.RestartPolicy) bool {
	var delay time.Duration
	for ctx.Err() == nil {
		image, err := c.w.k.cfg.image(c.spec.Image)
		if err != nil {
			c.unpullable(ctx, err)
			return false
		}
		began := time.Now()
		p, err := c.program(ctx, image)
		if err != nil {
			c.wait("CreateContainerConfigError", err.Error())
			sleep(ctx, retryAfter)
			continue
		}
		code := c.live(ctx, p)
		if ctx.Err() != nil || policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && code == 0 {
			return code == 0
		}
		if time.Since(began) > calmAfter {
			delay = 0
		}
		if delay > 0 {
			why := fmt.Sprintf("back-off %s restarting failed container=%s pod=%s/%s", delay, c.spec.Name, c.w.namespace, c.w.name)
			c.wait("CrashLoopBackOff", why)
			c.w.k.events.Event(c.w.object(), corev1.EventTypeWarning, "BackOff", why)
			sleep(ctx, delay)
		}
		delay = max(firstBackOff, min(2*delay, maxBackOff))
		c.again()
	}
	return false
}

// unpullable is the state of a container whose image does not exist.
func (c *container) unpullable(ctx context.Context, why error) {
	c.w.k.events.Event(c.w.object(), corev1.EventTypeWarning, "Failed", "Error: ErrImagePull: "+why.Error())
	c.wait("ErrImagePull", why.Error())
	sleep(ctx, firstBackOff)
	c.wait("ImagePullBackOff", why.Error())
	<-ctx.Done()
}

func (c *container) wait(reason, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Terminated != nil {
		c.last = c.state
	}
	c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: why}}
	c.w.changed()
}

// again begins a new life.
func (c *container) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Terminated != nil {
		c.last = c.state
	}
	c.restarts++
	c.before, c.logs = c.logs, newJournal()
}

// live is one life of the container, from its start to its end. The context ends it with the Pod's grace.
func (c *container) live(ctx context.Context, p *netns.Program) (code int) {
	life, end := context.WithCancel(ctx)
	defer end()
	out, complaint := c.logs.writer("stdout"), c.logs.writer("stderr")
	cmd, err := p.Start(func(cmd *exec.Cmd) { prepare(cmd, nil, out, complaint) })
	now := metav1.Now()
	c.mu.Lock()
	c.id = idScheme + newID()
	if err != nil {
		c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 128, Reason: "StartError", Message: err.Error(), StartedAt: now, FinishedAt: now, ContainerID: c.id,
		}}
		c.w.changed()
		c.mu.Unlock()
		return 128
	}
	c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	c.started, c.ready, c.kill = c.spec.StartupProbe == nil, c.spec.StartupProbe == nil && c.spec.ReadinessProbe == nil, end
	c.w.changed()
	c.mu.Unlock()

	probes, stop := context.WithCancel(life)
	var probing sync.WaitGroup
	probing.Go(func() { c.probe(probes) })
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
		case <-life.Done():
			terminate(cmd, ended, c.w.grace())
		}
	}()
	_ = cmd.Wait() // the state says how
	close(ended)
	stop()
	probing.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it began
	return c.finish(cmd, now)
}

// idScheme is what identifiers of containers begin with.
const idScheme = "process://"

func (c *container) finish(cmd *exec.Cmd, began metav1.Time) int {
	code, signal := cmd.ProcessState.ExitCode(), int32(0)
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		signal = int32(ws.Signal()) //nolint:gosec // a small number
		code = 128 + int(signal)
	}
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs.finish()
	c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, StartedAt: began, FinishedAt: metav1.Now(), ContainerID: c.id, //nolint:gosec // an exit code
	}}
	c.started, c.ready, c.kill = false, false, nil
	c.w.changed()
	return code
}

// prepare completes the command of a process that ends with the kubelet, in a separate process group.
func prepare(cmd *exec.Cmd, in io.Reader, out, complaint io.Writer) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.WaitDelay = time.Second
}

// terminate asks a process to end, and ends it after that time.
func terminate(cmd *exec.Cmd, ended <-chan struct{}, grace time.Duration) {
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-ended:
	case <-time.After(grace):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // as above
	}
}

// program is what the container runs, and its surroundings.
func (c *container) program(ctx context.Context, image *Image) (*netns.Program, error) {
	pod := c.w.object()
	env, err := c.environment(ctx, pod)
	if err != nil {
		return nil, err
	}
	args, err := expand(image.argv(c.spec), env)
	if err != nil {
		return nil, err
	}
	p := &netns.Program{Netns: c.w.netns(), Dir: c.spec.WorkingDir, Args: args, Env: env}
	if err := unsupported(pod, c.spec); err != nil {
		return nil, err
	}
	if onMachine(pod, c.spec) {
		p.Args = image.onMachine(args)
		return p, nil
	}
	mounts, err := c.mounts(ctx, pod, image)
	if err != nil {
		return nil, err
	}
	p.Root = &netns.Root{Dir: filepath.Join(c.w.dir, "root"), Hostname: hostname(pod, c.w.k.cfg.Node), Mounts: mounts}
	return p, nil
}

// onMachine reports whether a container sees the machine itself: it is privileged and on the node's network, as agents are.
func onMachine(pod *corev1.Pod, c *corev1.Container) bool {
	return pod.Spec.HostNetwork && c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// unsupported is an error if the kubelet cannot do what a Pod asks for.
func unsupported(pod *corev1.Pod, c *corev1.Container) error {
	for kind, p := range map[string]*corev1.Probe{"startupProbe": c.StartupProbe, "livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe} {
		if p != nil && p.GRPC != nil {
			return fmt.Errorf("%w: %s.grpc: this kubelet has httpGet, tcpSocket and exec", errConfig, kind)
		}
	}
	if c.Lifecycle != nil {
		return fmt.Errorf("%w: lifecycle: this kubelet has no hooks", errConfig)
	}
	if c.RestartPolicy != nil {
		return fmt.Errorf("%w: restartPolicy of a container: this kubelet has no sidecar containers", errConfig)
	}
	if pod.Spec.HostPID || pod.Spec.HostIPC || pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace {
		return nil // the process sees all of the machine's in any case
	}
	return nil
}
