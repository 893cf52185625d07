package grpc

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig"
	"github.com/contiv-agent/contiv-agent/proto/ligato/generic"
)

// typePrefix precedes the full name of a message in the type URL. As in ligato's API.
const typePrefix = "models.ligato.io/"

// model returns the requested model; by is kv.Model's Name or Proto.
func model(word string, by func(kv.Model) string) (kv.Model, error) {
	for _, m := range kv.Models() {
		if by(m) == word {
			return m, nil
		}
	}
	return kv.Model{}, status.Errorf(codes.InvalidArgument, "model %q is not known here", word)
}

func modelName(m kv.Model) string  { return m.Name }
func modelProto(m kv.Model) string { return m.Proto }

// readItem returns the key of an item, and its value; nil: it has none.
func readItem(item *generic.Item) (string, proto.Message, error) {
	key := ""
	if id := item.GetId(); id != nil {
		m, err := model(id.GetModel(), modelName)
		if err != nil {
			return "", nil, err
		}
		key = m.Key(id.GetName())
	}
	data := item.GetData().GetAny()
	if data == nil {
		if key == "" || item.GetData() != nil {
			return "", nil, status.Error(codes.InvalidArgument, "an item has neither id nor value, or a value that is empty")
		}
		return key, nil, nil
	}
	m, err := model(data.GetTypeUrl()[strings.LastIndexByte(data.GetTypeUrl(), '/')+1:], modelProto)
	if err != nil {
		return "", nil, err
	}
	msg := m.New()
	if err := proto.Unmarshal(data.GetValue(), msg); err != nil {
		return "", nil, status.Errorf(codes.InvalidArgument, "%s %q: %v", m.Proto, key, err)
	}
	if err := understood(msg.ProtoReflect()); err != nil {
		return "", nil, err
	}
	if own := kv.Key(msg); key != "" && key != own {
		return "", nil, status.Errorf(codes.InvalidArgument, "item %q: its value has the key %q", key, own)
	}
	return kv.Key(msg), msg, nil
}

// id returns ligato's identifier of a key.
func id(key string) *generic.Item_ID {
	m, name, _ := kv.Lookup(key)
	return &generic.Item_ID{Model: m.Name, Name: name}
}

// writeItem returns a value as an item; nil: its name only.
func writeItem(key string, msg proto.Message) (*generic.Item, error) {
	item := &generic.Item{Id: id(key)}
	if msg != nil {
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
		if err != nil {
			return nil, status.Errorf(codes.Internal, "%q: %v", key, err)
		}
		typ := typePrefix + string(msg.ProtoReflect().Descriptor().FullName())
		item.Data = &generic.Data{Union: &generic.Data_Any{Any: &anypb.Any{TypeUrl: typ, Value: value}}}
	}
	return item, nil
}

// itemStatus returns the state of a value.
func itemStatus(st event.ValueStatus) *generic.ItemStatus {
	out := &generic.ItemStatus{Status: st.State.String(), Message: st.Err}
	if len(st.Details) > 0 {
		out.Message = strings.Join(st.Details, ", ")
	}
	return out
}

func (s *Server) setConfig(ctx context.Context, set *generic.SetConfigRequest) (proto.Message, error) {
	req, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	if set.GetOverwriteAll() {
		req.Op = extconfig.Resync
	}
	for _, u := range set.GetUpdates() {
		if err := addItem(&req, u.GetItem(), extconfig.Terms{Labels: u.GetLabels()}); err != nil {
			return nil, err
		}
	}
	out, err := s.applyRequest(ctx, &req)
	if err != nil {
		return nil, err
	}
	resp := &generic.SetConfigResponse{}
	for _, k := range out.All {
		resp.Results = append(resp.Results, &generic.UpdateResult{
			Id: id(k.Status.Key), Key: k.Status.Key, Status: itemStatus(k.Status),
			Op: generic.UpdateResult_Operation(generic.UpdateResult_Operation_value[k.Op]),
		})
	}
	return resp, nil
}

// addItem adds an item to a request: a creation, or a deletion if the item has no value.
func addItem(req *extconfig.Request, item *generic.Item, terms extconfig.Terms) error {
	if item == nil {
		return status.Error(codes.InvalidArgument, "a change without an item")
	}
	key, msg, err := readItem(item)
	switch {
	case err != nil:
		return err
	case msg == nil || req.Op == extconfig.Delete:
		req.Gone = append(req.Gone, key)
	default:
		req.Items = append(req.Items, msg)
		if req.Terms == nil {
			req.Terms = map[string]extconfig.Terms{}
		}
		req.Terms[key] = terms
	}
	return nil
}

// chosen are keys and prefixes; none: all.
func chosen(ids []*generic.Item_ID) (func(key string) bool, error) {
	keys := map[string]bool{}
	models := map[string]bool{}
	for _, id := range ids {
		m, err := model(id.GetModel(), modelName)
		if err != nil {
			return nil, err
		}
		if id.GetName() == "" {
			models[m.Name] = true
		} else {
			keys[m.Key(id.GetName())] = true
		}
	}
	return func(key string) bool {
		if len(ids) == 0 || keys[key] {
			return true
		}
		m, _, _ := kv.Lookup(key)
		return models[m.Name]
	}, nil
}

// labelled reports whether labels match a selector: the label exists with that value, or with any if the value is empty; after an
// exclamation mark, the reverse.
func labelled(want, have map[string]string) bool {
	for name, value := range want {
		name, not := strings.CutPrefix(name, "!")
		has, there := have[name]
		if match := there && (value == "" || value == has); match == not {
			return false
		}
	}
	return true
}

func (s *Server) getConfig(ctx context.Context, req *generic.GetConfigRequest) (proto.Message, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	if len(req.GetIds()) > 0 && len(req.GetLabels()) > 0 {
		return nil, status.Error(codes.InvalidArgument, "items are chosen by name or by label, not both")
	}
	choose, err := chosen(req.GetIds())
	if err != nil {
		return nil, err
	}
	values, terms, err := s.keeper.Wants(ctx, who.Client)
	if err != nil {
		return nil, statusOf(err)
	}
	states := map[string]*generic.ItemStatus{}
	if s.values != nil {
		for _, v := range s.values() {
			if values[v.Key] != nil {
				states[v.Key] = itemStatus(v.ValueStatus)
			}
		}
	}
	resp := &generic.GetConfigResponse{}
	for _, key := range values.Keys() {
		if !choose(key) || !labelled(req.GetLabels(), terms[key].Labels) {
			continue
		}
		item, err := writeItem(key, values[key])
		if err != nil {
			return nil, err
		}
		resp.Items = append(resp.Items, &generic.ConfigItem{Item: item, Status: states[key], Labels: terms[key].Labels})
	}
	return resp, nil
}

func (s *Server) dumpState(ctx context.Context, req *generic.DumpStateRequest) (proto.Message, error) {
	if _, err := caller(ctx); err != nil {
		return nil, err
	}
	if s.values == nil {
		return nil, errBlind
	}
	choose, err := chosen(req.GetIds())
	if err != nil {
		return nil, err
	}
	resp := &generic.DumpStateResponse{}
	for _, v := range s.values() {
		if v.State != event.Configured || !choose(v.Key) {
			continue
		}
		item, err := writeItem(v.Key, v.Message)
		if err != nil {
			return nil, err
		}
		resp.Items = append(resp.Items, &generic.StateItem{Item: item, Metadata: map[string]string{"since": v.Since.UTC().Format(time.RFC3339)}})
	}
	return resp, nil
}

// subscribe sends the changes of values from now on.
func (s *Server) subscribe(req *generic.SubscribeRequest, stream grpc.ServerStream) error {
	if s.values == nil {
		return errBlind
	}
	var ids []*generic.Item_ID
	for _, sub := range req.GetSubscriptions() {
		ids = append(ids, sub.GetId())
	}
	choose, err := chosen(ids)
	if err != nil {
		return err
	}
	at := s.changes.nextNumber()
	if err := stream.SendHeader(nil); err != nil { // marks the start of the subscription for the client
		return err
	}
	for {
		changes, first, err := s.changes.readEntries(stream.Context(), at)
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if first > at {
			return status.Errorf(codes.DataLoss, "too slow: %d notifications are gone", first-at)
		}
		at += uint64(len(changes))
		resp := &generic.SubscribeResponse{}
		for _, c := range changes {
			if !choose(c.Key) {
				continue
			}
			item, err := writeItem(c.Key, c.message)
			if err != nil {
				return err
			}
			resp.Notifications = append(resp.Notifications, &generic.Notification{Item: item, Status: itemStatus(c.ValueStatus)})
			if len(resp.Notifications) == portion {
				if err := stream.SendMsg(resp); err != nil {
					return err
				}
				resp = &generic.SubscribeResponse{}
			}
		}
		if len(resp.Notifications) > 0 {
			if err := stream.SendMsg(resp); err != nil {
				return err
			}
		}
	}
}

// errBlind is the error for a client that asks for states while the server has no access to them (controller.Onlooker).
var errBlind = status.Error(codes.Unimplemented, "this server does not see what becomes of values")
