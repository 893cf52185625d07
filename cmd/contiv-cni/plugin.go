package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

const (
	// patience is how long an ADD waits for an agent that does not listen: one that is replaced listens again within it. A runtime repeats
	// an ADD only after some ten seconds.
	patience = 3 * time.Second
	askEvery = 100 * time.Millisecond
	// The agent's limits are a minute for an ADD and 30 s for other calls; these let its answer arrive.
	addLimit    = 65 * time.Second
	callLimit   = 35 * time.Second
	statusLimit = 5 * time.Second
)

// plugin carries out the calls of a runtime.
type plugin struct {
	socket, spool string
	patience      time.Duration
	step          func(string) // nil; in tests it ends the plugin at a point
}

func newPlugin(socket, spool string) *plugin {
	return &plugin{socket: socket, spool: spool, patience: patience}
}

// reach marks a point at which the process may be killed.
func (p *plugin) reach(point string) {
	if p.step != nil {
		p.step(point)
	}
}

// add connects a sandbox and prints the result.
func (p *plugin) add(args *skel.CmdArgs) error {
	c, err := p.parseConfig(args.StdinData)
	if err != nil {
		return toCNI(err)
	}
	res, err := p.connect(c, args)
	if err != nil {
		return toCNI(err)
	}
	p.reach("print")
	return types.PrintResult(res, c.CNIVersion)
}

// connect is add without the output. If the agent refuses, the address of another IPAM plugin is released again.
func (p *plugin) connect(c *config, args *skel.CmdArgs) (*types100.Result, error) {
	r, err := request(c, args)
	if err != nil {
		return nil, err
	}
	var previous *types100.Result
	if c.PrevResult != nil {
		if previous, err = types100.NewResultFromResult(c.PrevResult); err != nil {
			return nil, protocol.Errorf(protocol.CodeDecoding, "prevResult: %v", err)
		}
	}
	dns := c.DNS
	if c.delegates() {
		lease, err := p.delegateAdd(c, args)
		if err == nil {
			r.IPs, r.Routes, err = fromResult(lease)
		}
		if err != nil {
			return nil, errors.Join(err, p.delegate("DEL", c, args))
		}
		if dns.IsEmpty() {
			dns = lease.DNS
		}
	}
	p.reach("agent add")
	res, err := p.call(c, r)
	if err == nil {
		return toResult(res, previous, dns), nil
	}
	p.reach("add failed")
	if errors.Is(err, protocol.ErrNoAnswer) { // the agent may have carried it out, or will
		return nil, p.combine(err, p.remove(c, args, r))
	}
	if c.delegates() {
		return nil, p.combine(err, p.delegate("DEL", c, args))
	}
	return nil, err
}

// combine adds the error of the clean-up to that of the call, whose code decides.
func (p *plugin) combine(err, cleanup error) error {
	if cleanup == nil {
		return err
	}
	e := *toCNI(err)
	e.Details = fmt.Sprintf("%s; and the clean-up failed, which the next DEL repeats: %v", e.Details, cleanup)
	return &e
}

// call asks the agent for an ADD. It waits for an agent that starts.
func (p *plugin) call(c *config, r protocol.Request) (*protocol.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), addLimit)
	defer cancel()
	client := protocol.Client{Socket: c.Socket}
	for begin := time.Now(); ; {
		res, err := client.Add(ctx, r)
		if !errors.Is(err, protocol.ErrNoAgent) || time.Since(begin)+askEvery > p.patience {
			return res, err
		}
		timer := time.NewTimer(askEvery)
		<-timer.C
	}
}

// del removes an attachment. It succeeds without an agent, because it records the DEL for the next one.
func (p *plugin) del(args *skel.CmdArgs) error {
	c, err := p.parseConfig(args.StdinData)
	if err != nil {
		return toCNI(err)
	}
	r, err := request(c, args)
	if err != nil {
		return toCNI(err)
	}
	if err := p.remove(c, args, r); err != nil {
		return toCNI(err)
	}
	return nil
}

// remove removes an attachment, and then releases the addresses of another IPAM plugin: never before the agent has removed the attachment,
// or will do so before it serves the next ADD. If it fails the runtime repeats the DEL.
func (p *plugin) remove(c *config, args *skel.CmdArgs, r protocol.Request) error {
	p.reach("agent delete")
	if err := p.deleteOrRecord(c, r); err != nil {
		return err
	}
	p.reach("release")
	if c.delegates() {
		return p.delegate("DEL", c, args)
	}
	return nil
}

// deleteOrRecord asks the agent, or records the DEL. An agent that starts listens first and then reads the records: so the plugin asks
// again after it has written the record, and either finds the agent or leaves the record to it.
func (p *plugin) deleteOrRecord(c *config, r protocol.Request) error {
	client, spool := protocol.Client{Socket: c.Socket}, protocol.Spool{Dir: c.Spool}
	ask := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		return client.Delete(ctx, r)
	}
	err := ask()
	if !away(err) {
		return err
	}
	p.reach("record")
	if recordErr := spool.Record(r); recordErr != nil {
		return p.combine(err, recordErr)
	}
	p.reach("recorded")
	if err = ask(); away(err) {
		return nil
	}
	p.reach("found")
	if err != nil {
		return err // the record stays, and the agent carries it out as well
	}
	return spool.Remove(r.Attachment)
}

// away reports whether a call failed because no agent runs, or because it ended during the call. An agent that is slow is not away.
func away(err error) bool {
	return errors.Is(err, protocol.ErrNoAgent) || errors.Is(err, protocol.ErrNoAnswer) && !errors.Is(err, context.DeadlineExceeded)
}

// check compares an attachment with the result of its ADD.
func (p *plugin) check(args *skel.CmdArgs) error {
	c, err := p.parseConfig(args.StdinData)
	if err != nil {
		return toCNI(err)
	}
	r, err := request(c, args)
	if err != nil {
		return toCNI(err)
	}
	if c.PrevResult == nil {
		return toCNI(protocol.Errorf(protocol.CodeInvalidConfig, "prevResult: missing, and CHECK needs it"))
	}
	previous, err := types100.NewResultFromResult(c.PrevResult)
	if err != nil {
		return toCNI(protocol.Errorf(protocol.CodeDecoding, "prevResult: %v", err))
	}
	own, err := ownResult(previous, args)
	if err == nil && c.delegates() {
		err = p.delegate("CHECK", c, args)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		err = (&protocol.Client{Socket: c.Socket}).Check(ctx, r, own)
	}
	if err != nil {
		return toCNI(err)
	}
	return nil
}

// status returns why no ADD can be served. Without an agent none can: code 50, which containerd shows as the condition of the node.
func (p *plugin) status(args *skel.CmdArgs) error {
	c, err := p.parseConfig(args.StdinData)
	if err != nil {
		return toCNI(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusLimit)
	defer cancel()
	if err = (&protocol.Client{Socket: c.Socket}).Status(ctx); err == nil && c.delegates() {
		err = p.delegate("STATUS", c, args)
	}
	if err == nil {
		return nil
	}
	e := *toCNI(err)
	if e.Code != protocol.CodeLimited {
		e.Code = protocol.CodeNotAvailable
	}
	return &e
}

// gc removes what belongs to no valid attachment.
func (p *plugin) gc(args *skel.CmdArgs) error {
	c, err := p.parseConfig(args.StdinData)
	if err != nil {
		return toCNI(err)
	}
	valid := make([]protocol.Attachment, 0, len(c.ValidAttachments))
	for _, a := range c.ValidAttachments {
		valid = append(valid, protocol.Attachment{ContainerID: a.ContainerID, IfName: a.IfName})
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	err = (&protocol.Client{Socket: c.Socket}).Collect(ctx, valid)
	if err == nil && c.delegates() {
		err = p.delegate("GC", c, args)
	}
	if err != nil {
		return toCNI(err)
	}
	return nil
}

// toCNI returns the error that the runtime gets.
func toCNI(err error) *types.Error {
	var e *types.Error
	if errors.As(err, &e) {
		return e
	}
	var own *protocol.Error
	if errors.As(err, &own) {
		return &types.Error{Code: own.Code, Msg: own.Msg, Details: own.Details}
	}
	return &types.Error{Code: protocol.CodeInternal, Msg: err.Error()}
}
