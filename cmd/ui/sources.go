package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/control"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/ui/watch"
)

// node is the agent of this node, by its socket.
type node struct{ socket string }

var _ watch.Source = (*node)(nil)

// Nodes implements watch.Source. The agent's status names its node.
func (n *node) Nodes(ctx context.Context) ([]string, error) {
	st, err := control.FetchStatus(ctx, n.socket, false)
	if err != nil {
		return nil, err
	}
	return []string{st.Node}, nil
}

// Status implements watch.Source.
func (n *node) Status(ctx context.Context, _ string) (*status.Status, error) {
	return control.FetchStatus(ctx, n.socket, false)
}

// Flows implements watch.Source.
func (n *node) Flows(ctx context.Context, _ string, after uint64) (*agentflows.Answer, error) {
	return control.FetchAllFlows(ctx, n.socket, after)
}

// Policy implements watch.Source.
func (n *node) Policy(ctx context.Context, pod model.PodID) (*policy.Description, error) {
	return control.FetchPolicy(ctx, n.socket, pod)
}

func (n *node) objects(ctx context.Context) ([]event.Change, error) {
	return control.FetchObjects(ctx, n.socket)
}

func (n *node) settings(ctx context.Context) (*flags.Agent, error) {
	st, err := n.Status(ctx, "")
	if err != nil {
		return nil, err
	}
	return settingsOf(st)
}

// settingsOf returns the flags of a running agent.
func settingsOf(st *status.Status) (*flags.Agent, error) {
	f := &flags.Agent{}
	if err := f.Apply(st.Settings); err != nil {
		return nil, fmt.Errorf("the agent of %s has a setting that this program lacks: %w", st.Node, err)
	}
	if st.Ifs != nil && st.Ifs.Uplink == "" && st.Ifs.Host != "" {
		f.OutByHost()
	}
	return f, nil
}

// placesAge is how long the agents' pods are used before they are listed again.
const placesAge = 30 * time.Second

// cluster is the agents of a cluster, by kubectl.
type cluster struct {
	agents *kubectl.Agents
	only   string // node; "": all
	now    func() time.Time
	follow *followed // nil: flows are read in each round

	mu     sync.Mutex // of the rest: queries to nodes run at the same time
	places map[string]kubectl.Place
	listed time.Time
}

var _ watch.Source = (*cluster)(nil)

// Nodes implements watch.Source.
func (c *cluster) Nodes(ctx context.Context) (names []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.places == nil || c.now().Sub(c.listed) > placesAge {
		list, err := c.agents.List(ctx, c.only)
		if err != nil {
			return nil, err
		}
		c.places, c.listed = map[string]kubectl.Place{}, c.now()
		for _, p := range list {
			c.places[p.Node] = p
		}
	}
	for name := range c.places {
		names = append(names, name)
	}
	return names, nil
}

// query runs a command of a node's agent that writes JSON. After an error the pods are listed again: the node may have another agent.
func (c *cluster) query(ctx context.Context, node string, into any, args ...string) error {
	c.mu.Lock()
	at, known := c.places[node]
	c.mu.Unlock()
	if !known {
		return fmt.Errorf("no agent runs on node %s", node)
	}
	var complaint strings.Builder
	all, _, err := c.agents.Collect(ctx, &complaint, []kubectl.Question{{Place: at, Args: args}})
	if err == nil {
		if all.Items[0].Answer != nil {
			return json.Unmarshal(all.Items[0].Answer, into)
		}
		err = fmt.Errorf("%s: exit code %d: %s", args[0], all.Items[0].ExitCode, strings.TrimSpace(complaint.String()))
	}
	c.mu.Lock()
	c.listed = time.Time{}
	c.mu.Unlock()
	return err
}

// Status implements watch.Source.
func (c *cluster) Status(ctx context.Context, node string) (*status.Status, error) {
	st := &status.Status{}
	return st, c.query(ctx, node, st, "status", "--output=json")
}

// Flows implements watch.Source. It returns all flows of a node that it does not follow: the command shows all.
func (c *cluster) Flows(ctx context.Context, node string, after uint64) (*agentflows.Answer, error) {
	c.mu.Lock()
	at, known := c.places[node]
	c.mu.Unlock()
	if c.follow != nil && known {
		if a := c.follow.changed(ctx, at, after); a != nil {
			return a, nil
		}
	}
	a := &agentflows.Answer{}
	return a, c.query(ctx, node, a, "flows", "--output=json")
}

// Policy implements watch.Source.
func (c *cluster) Policy(ctx context.Context, pod model.PodID) (*policy.Description, error) {
	node, err := c.agents.NodeOf(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return nil, err
	}
	if _, err := c.Nodes(ctx); err != nil {
		return nil, err
	}
	var list []*policy.Description
	if err := c.query(ctx, node, &list, "policy", "--output=json", "--", pod.String()); err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("policy of %s: %d answers", pod, len(list))
	}
	return list[0], nil
}

func (c *cluster) settings(ctx context.Context) (*flags.Agent, error) {
	list, err := c.agents.List(ctx, c.only)
	if err != nil {
		return nil, err
	}
	st, err := c.agents.StatusOf(ctx, list[0])
	if err != nil {
		return nil, err
	}
	return settingsOf(st)
}
