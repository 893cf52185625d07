package connectivity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/connectivity/probe"
	"github.com/contiv-agent/contiv-agent/model"
)

// run is a test that is in progress.
type run struct {
	world
	cluster Cluster
	agents  Agents
	emit    func(*Result)
	report  Report
	left    error // why the namespace is left
}

// Run tests a cluster, and calls emit with the result of each check, as soon as it is known. The error is why there is no complete report.
func Run(ctx context.Context, cfg Config, cluster Cluster, agents Agents, emit func(*Result)) (*Report, error) {
	t := &run{world: world{cfg: &cfg, services: map[string]*corev1.Service{}}, cluster: cluster, agents: agents, emit: emit}
	began := time.Now()
	err := t.test(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	err = errors.Join(err, t.left)
	t.report.Took = time.Since(began)
	t.report.Passed = err == nil && t.report.count(Failed) == 0
	return &t.report, err
}

// wants reports whether a group of checks is selected.
func (c *Config) wants(group string) bool {
	return len(c.Groups) == 0 || slices.Contains(c.Groups, group)
}

// test makes the objects, measures, and removes them.
func (t *run) test(ctx context.Context) error {
	if err := t.findNodes(ctx); err != nil {
		return err
	}
	image, err := t.findAgents(ctx)
	if err != nil {
		return err
	}
	if t.cfg.wants(GroupAgents) {
		t.addResult(t.checkAgents())
	}
	if len(t.cfg.Groups) == 1 && t.cfg.wants(GroupAgents) {
		return nil
	}
	if err := t.free(ctx); err != nil {
		return err
	}
	if !t.cfg.Keep {
		defer func() { t.left = t.cleanUp(ctx) }()
	}
	if err := t.makeObjects(ctx, image); err != nil {
		return err
	}
	p := t.base()
	t.measure(ctx, p)
	t.explain(ctx, p)
	t.conclude(p)
	if t.cfg.wants(GroupPolicies) && ctx.Err() == nil {
		return t.testPolicies(ctx)
	}
	return nil
}

// addResult adds the result of a check to the report.
func (t *run) addResult(r Result) {
	t.report.Results = append(t.report.Results, r)
	t.emit(&t.report.Results[len(t.report.Results)-1])
}

func (t *run) conclude(p *plan) {
	for _, c := range p.checks {
		c.conclude()
		t.addResult(c.Result)
	}
}

// findNodes reads the nodes that are tested.
func (t *run) findNodes(ctx context.Context) error {
	var list corev1.NodeList
	if err := t.cluster.Read(ctx, &list, "nodes"); err != nil {
		return err
	}
	missing := slices.Clone(t.cfg.Nodes)
	for i := range list.Items {
		n := &list.Items[i]
		chosen := slices.Contains(t.cfg.Nodes, n.Name)
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == n.Name })
		if os := n.Labels[corev1.LabelOSStable]; !chosen && (len(t.cfg.Nodes) > 0 || os != "" && os != "linux") {
			continue
		}
		m := &machine{name: n.Name, direct: n.Annotations[model.AnnotationUplink] != ""}
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
				m.addresses = append(m.addresses, addr)
			}
		}
		t.nodes = append(t.nodes, m)
	}
	if len(missing) > 0 {
		return fmt.Errorf("no node is named %s", strings.Join(missing, ", "))
	}
	if len(t.nodes) == 0 {
		return errors.New("the cluster has no nodes")
	}
	slices.SortFunc(t.nodes, func(a, b *machine) int { return cmp.Compare(a.name, b.name) })
	return nil
}

// free makes sure that the namespace is the test's.
func (t *run) free(ctx context.Context) error {
	var list corev1.NamespaceList
	if err := t.cluster.Read(ctx, &list, "namespaces"); err != nil {
		return err
	}
	for i := range list.Items {
		n := &list.Items[i]
		t.reused = t.reused || n.Name == t.cfg.Namespace
		switch {
		case n.Name != t.cfg.Namespace:
		case n.Labels[testLabel] == "":
			return fmt.Errorf("namespace %s exists, and is not of this test: choose another one (--test-namespace)", n.Name)
		case n.DeletionTimestamp != nil:
			return fmt.Errorf("namespace %s of an earlier test is being deleted: try again later, or choose another one (--test-namespace)", n.Name)
		}
	}
	return nil
}

// cleanUpLimit is how long the removal of the namespace may take.
const cleanUpLimit = 90 * time.Second

// cleanUp removes the namespace, also when the test was interrupted.
func (t *run) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit+10*time.Second)
	defer cancel()
	err := t.cluster.Delete(ctx, "namespace", t.cfg.Namespace, "--ignore-not-found", "--wait", "--timeout="+cleanUpLimit.String())
	if err != nil {
		return fmt.Errorf("namespace %s of the test is left: %w", t.cfg.Namespace, err)
	}
	return nil
}

// atOnce is how many pods are asked at the same time.
const atOnce = 8

// eachAtOnce calls do with each element, some at the same time.
func eachAtOnce[T any](all []T, do func(T)) {
	var running errgroup.Group
	running.SetLimit(atOnce)
	for _, one := range all {
		running.Go(func() error { do(one); return nil })
	}
	_ = running.Wait() // none fails
}

// measure executes the probes of a plan in their pods, and evaluates the outcomes.
func (t *run) measure(ctx context.Context, p *plan) {
	var all []*path
	for _, c := range p.checks {
		all = append(all, c.paths...)
	}
	t.measurePaths(ctx, all, nil)
}

// measurePaths executes probes, and evaluates the outcomes. The function early, if not nil, is called with each outcome as it arrives.
func (t *run) measurePaths(ctx context.Context, all []*path, early func(*path)) {
	var one sync.Mutex
	eachAtOnce(t.endpoints, func(from *endpoint) {
		var mine []*path
		for _, p := range all {
			if p.from == from {
				p.probe.ID, p.outcome, p.broken = len(mine), probe.Outcome{}, nil
				mine = append(mine, p)
			}
		}
		err := t.execute(ctx, from, mine, func(p *path) {
			if early != nil {
				one.Lock()
				defer one.Unlock()
				early(p)
			}
		})
		for _, p := range mine {
			if p.outcome.Took == 0 {
				p.broken = cmp.Or(err, errNoOutcome)
			}
			p.evaluate()
		}
	})
}

// errNoOutcome is of a program that ended without an outcome.
var errNoOutcome = errors.New("it ended early")

// execLimit is how long the probes of a pod may take beside the limits of single ones.
const execLimit = time.Minute

// execute executes probes in one pod.
func (t *run) execute(ctx context.Context, from *endpoint, paths []*path, arrived func(*path)) error {
	if len(paths) == 0 {
		return nil
	}
	var probes []probe.Probe
	longest := time.Duration(0)
	for _, p := range paths {
		probes = append(probes, p.probe)
		longest = max(longest, p.probe.Limit)
	}
	in, err := json.Marshal(probes)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, execLimit+time.Duration(1+len(paths)/64)*3*longest)
	defer cancel()
	line := func(b []byte) {
		var o probe.Outcome
		if err := json.Unmarshal(b, &o); err != nil || o.ID < 0 || o.ID >= len(paths) {
			return // a path without an outcome says so
		}
		paths[o.ID].outcome = o
		arrived(paths[o.ID])
	}
	return t.cluster.Execute(ctx, t.cfg.Namespace, from.name, string(in), line, "contiv-agent", "connectivity", "probe")
}
