// A franz-go client as a member of a group, a transactional producer, a worker between two
// topics, or one that answers the requests of the compat tests. What to be is the first argument,
// one JSON object; commands come and events go as lines of JSON.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type object = map[string]any

type given struct {
	Role                 string  `json:"role"`
	Bootstrap            string  `json:"bootstrap"`
	Group                string  `json:"group"`
	Topic                string  `json:"topic"`
	Output               string  `json:"output"`
	Assignor             string  `json:"assignor"`
	GroupProtocol        string  `json:"group_protocol"`
	InstanceID           *string `json:"instance_id"`
	Isolation            string  `json:"isolation"`
	CommitOnRevoke       bool    `json:"commit_on_revoke"`
	SessionTimeoutMs     int     `json:"session_timeout_ms"`
	HeartbeatIntervalMs  int     `json:"heartbeat_interval_ms"`
	TransactionalID      string  `json:"transactional_id"`
	TransactionTimeoutMs int     `json:"transaction_timeout_ms"`
}

// A value of a record to send: [partition, value].
type sent struct {
	Partition int32
	Value     string
}

func (s *sent) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&s.Partition, &s.Value})
}

type command struct {
	Do      string          `json:"do"`
	Topic   string          `json:"topic"`
	Records []sent          `json:"records"`
	Offsets map[int32]int64 `json:"offsets"`
}

var output sync.Mutex

func tell(event string, fields object) {
	line := object{"event": event}
	for name, value := range fields {
		line[name] = value
	}
	write(line)
}

func write(line object) {
	text, err := json.Marshal(line)
	check(err)
	output.Lock()
	defer output.Unlock()
	_, err = fmt.Println(string(text))
	check(err)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Kafka's code of a refusal, -1 where it has none.
func codeOf(err error) int16 {
	var refused *kerr.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &refused):
		return refused.Code
	default:
		fmt.Fprintln(os.Stderr, err)
		return -1
	}
}

func lines() *bufio.Scanner {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, 64<<20)
	return scanner
}

// The end of the input is the command to leave.
func commands() <-chan command {
	heard := make(chan command, 100)
	go func() {
		for input := lines(); input.Scan(); {
			var next command
			check(json.Unmarshal(input.Bytes(), &next))
			heard <- next
		}
		heard <- command{Do: "leave"}
	}()
	return heard
}

func groupOptions(be given) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(be.Bootstrap),
		kgo.ConsumerGroup(be.Group),
		kgo.ConsumeTopics(be.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.SessionTimeout(time.Duration(be.SessionTimeoutMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(be.HeartbeatIntervalMs) * time.Millisecond),
	}
	switch {
	case be.GroupProtocol == "consumer":
		options = append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	case be.Assignor == "cooperative":
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	default:
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	if be.Isolation == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if be.InstanceID != nil {
		options = append(options, kgo.InstanceID(*be.InstanceID))
	}
	return options
}

func producerOptions(be given) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(be.Bootstrap),
		kgo.TransactionalID(be.TransactionalID),
		kgo.TransactionTimeout(time.Duration(be.TransactionTimeoutMs) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
	}
}

func main() {
	var be given
	check(json.Unmarshal([]byte(os.Args[1]), &be))
	switch be.Role {
	case "member":
		newMember(be).run(commands())
	case "producer":
		produceTransactions(be, commands())
	case "compat":
		answerRequests(be)
	default:
		work(be, commands())
	}
}
