package client

import (
	"context"
	"errors"
	"io"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/config"
	"github.com/contiv-agent/contiv-agent/proto/contiv/rpc"
	"github.com/contiv-agent/contiv-agent/proto/ligato/generic"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
)

// Metadata names; they equal the agent's.
const (
	clientKey        = "datasrc"
	revertKey        = "revert-on-failure"
	pendingKey       = "pending"
	unimplementedKey = "unimplemented"
)

const typePrefix = "models.ligato.io/"

// portionLength is the size in bytes at which a portion of a change ends. A change of one portion is sent as one message of
// Contiv's API if that can express it.
const portionLength = 1 << 20

// Send sends the change and waits until the agent has applied it. The error is an *Error if the agent answered. The end of
// ctx ends the waiting only: the agent completes a change that has begun.
func (c *Change) Send(ctx context.Context) error {
	if c.err != nil {
		return c.err
	}
	ctx = c.client.call(ctx)
	if data, method := c.request(); data != nil {
		if c.strict {
			ctx = metadata.AppendToOutgoingContext(ctx, revertKey, "true")
		}
		var trailer metadata.MD
		err := c.client.conn.Invoke(ctx, method, data, &rpc.PutResponse{}, grpc.Trailer(&trailer)) // all three responses are empty
		c.pending, c.unimplemented = unquoted(trailer.Get(pendingKey)), unquoted(trailer.Get(unimplementedKey))
		return toError(err, nil)
	}
	return c.stream(ctx)
}

// unquoted decodes keys from metadata.
func unquoted(keys []string) []string {
	for i, key := range keys {
		if plain, err := strconv.Unquote(key); err == nil {
			keys[i] = plain
		}
	}
	return keys
}

// call adds this client's metadata to a context.
func (c *Client) call(ctx context.Context) context.Context {
	if c.name != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, clientKey, c.name)
	}
	return ctx
}

// request returns the change as a message of Contiv's API; nil if the API cannot express it.
func (c *Change) request() (data *rpc.DataRequest, method string) {
	if len(c.merges)+len(c.labels) > 0 || len(c.items) > 0 && len(c.gone) > 0 {
		return nil, ""
	}
	items := c.items
	switch {
	case c.all:
		method = "/rpc.DataResyncService/Resync"
	case len(c.gone) == 0:
		method = "/rpc.DataChangeService/Put"
	case len(c.left) == len(c.gone):
		items, method = c.left, "/rpc.DataChangeService/Del"
	default:
		return nil, "" // Contiv's API deletes by message, not by key
	}
	data = &rpc.DataRequest{}
	m := data.ProtoReflect()
	fields := map[protoreflect.FullName]protoreflect.FieldDescriptor{}
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		fields[f.Message().FullName()] = f
	}
	length := 0
	for _, item := range items {
		f := fields[item.ProtoReflect().Descriptor().FullName()]
		if length += proto.Size(item); f == nil || length > portionLength || !f.IsList() && m.Has(f) {
			return nil, ""
		}
		if f.IsList() {
			m.Mutable(f).List().Append(protoreflect.ValueOfMessage(item.ProtoReflect()))
		} else {
			m.Set(f, protoreflect.ValueOfMessage(item.ProtoReflect()))
		}
	}
	return data, method
}

// stream sends the change as a stream of portions.
func (c *Change) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := c.client.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/contiv.config.ConfigService/Apply")
	if err != nil {
		return toError(err, nil)
	}
	if err = c.sendPortions(st); err != nil && !errors.Is(err, io.EOF) { // at EOF, the status has the reason
		return toError(err, nil)
	}
	var statuses []*kvscheduler.ValueStatus
	for {
		resp := &config.ApplyResponse{}
		if err = st.RecvMsg(resp); err != nil {
			break
		}
		statuses = append(statuses, resp.GetStatuses()...)
	}
	if !errors.Is(err, io.EOF) {
		return toError(err, statuses)
	}
	for _, s := range statuses {
		switch s.GetState() {
		case kvscheduler.ValueState_PENDING:
			c.pending = append(c.pending, s.GetKey())
		case kvscheduler.ValueState_UNIMPLEMENTED:
			c.unimplemented = append(c.unimplemented, s.GetKey())
		}
	}
	return nil
}

func (c *Change) sendPortions(st grpc.ClientStream) error {
	p := &config.ApplyRequest{AllOrNothing: c.strict}
	if c.all {
		p.Operation = config.Operation_RESYNC
	}
	length := 0
	add := func(item *config.Item) error {
		p.Items = append(p.Items, item)
		if length += proto.Size(item); length < portionLength {
			return nil
		}
		err := st.SendMsg(p)
		p, length = &config.ApplyRequest{}, 0
		return err
	}
	for _, m := range c.items {
		key := kv.Key(m)
		item, err := toItem(key, m)
		if err == nil {
			err = add(&config.Item{Item: item, Merge: c.merges[key].String(), Labels: c.labels[key]})
		}
		if err != nil {
			return err
		}
	}
	for _, key := range c.gone {
		if err := add(&config.Item{Item: &generic.Item{Id: toID(key)}}); err != nil {
			return err
		}
	}
	return errors.Join(st.SendMsg(p), st.CloseSend())
}

func toID(key string) *generic.Item_ID {
	m, name, _ := kv.Lookup(key)
	return &generic.Item_ID{Model: m.Name, Name: name}
}

func toItem(key string, m proto.Message) (*generic.Item, error) {
	value, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	any := &anypb.Any{TypeUrl: typePrefix + string(m.ProtoReflect().Descriptor().FullName()), Value: value}
	return &generic.Item{Id: toID(key), Data: &generic.Data{Union: &generic.Data_Any{Any: any}}}, nil
}

// Item is a value in the agent.
type Item struct {
	Key     string
	Message proto.Message
	State   event.State       // of Config; Nonexistent if the agent does not know it
	Why     string            // the dependency the value waits for, or its error
	Labels  map[string]string // of Config only
}

// Filter selects items by one of its two fields; the zero value selects all.
type Filter struct {
	Keys   []string // or names of models: all items of that model
	Labels map[string]string
}

func (f Filter) ids() (out []*generic.Item_ID) {
	for _, key := range f.Keys {
		if _, _, value := kv.Lookup(key); value {
			out = append(out, toID(key))
		} else {
			out = append(out, &generic.Item_ID{Model: key})
		}
	}
	return out
}

// Config returns this client's desired items, sorted by key.
func (c *Client) Config(ctx context.Context, f Filter) ([]Item, error) {
	resp := &generic.GetConfigResponse{}
	req := &generic.GetConfigRequest{Ids: f.ids(), Labels: f.Labels}
	if err := c.conn.Invoke(c.call(ctx), "/ligato.generic.ManagerService/GetConfig", req, resp); err != nil {
		return nil, toError(err, nil)
	}
	var out []Item
	for _, i := range resp.GetItems() {
		item, err := fromItem(i.GetItem())
		if err != nil {
			return nil, err
		}
		item.State, item.Why, item.Labels = state(i.GetStatus().GetStatus()), i.GetStatus().GetMessage(), i.GetLabels()
		out = append(out, item)
	}
	return out, nil
}

// State returns what VPP has acknowledged, of all owners, sorted by key. Filter.Labels has no effect.
func (c *Client) State(ctx context.Context, f Filter) ([]Item, error) {
	resp := &generic.DumpStateResponse{}
	if err := c.conn.Invoke(c.call(ctx), "/ligato.generic.ManagerService/DumpState", &generic.DumpStateRequest{Ids: f.ids()}, resp); err != nil {
		return nil, toError(err, nil)
	}
	var out []Item
	for _, i := range resp.GetItems() {
		item, err := fromItem(i.GetItem())
		if err != nil {
			return nil, err
		}
		item.State = event.Configured
		out = append(out, item)
	}
	return out, nil
}

func fromItem(item *generic.Item) (Item, error) {
	for _, m := range kv.Models() {
		if m.Name != item.GetId().GetModel() {
			continue
		}
		msg := m.New()
		err := proto.Unmarshal(item.GetData().GetAny().GetValue(), msg)
		return Item{Key: m.Key(item.GetId().GetName()), Message: msg}, err
	}
	return Item{}, errors.New("client: this client does not know the agent's model " + item.GetId().GetModel())
}

func state(word string) event.State { return event.State(kvscheduler.ValueState_value[word]) }
