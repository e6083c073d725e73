// Put, get, and add to a list by compare-and-set, with the standard library alone.
//
//	go run examples/client.go http://127.0.0.1:8080 apples
//
// DENDRA_TOKEN_FILE or DENDRA_TOKEN has a token, and DENDRA_CA names the CA of https://.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const attempts = 20

// errUnknown means that the write may have been applied, or may still be.
var errUnknown = errors.New("unknown outcome")

var (
	client = http.Client{Timeout: 10 * time.Second}
	token  = os.Getenv("DENDRA_TOKEN")
)

// readAccess reads the files that the variables name.
func readAccess() error {
	if path := os.Getenv("DENDRA_TOKEN_FILE"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		token = strings.TrimSpace(string(text))
	}
	if path := os.Getenv("DENDRA_CA"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		trusted := x509.NewCertPool()
		if !trusted.AppendCertsFromPEM(text) {
			return errors.New(path + " holds no certificate")
		}
		client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
	}
	return nil
}

type answer struct {
	status     int
	etag, body string
}

// request sends a refusal that changed nothing again, after the pause that the node asks for.
func request(method, node, key, body, header, value string) (answer, error) {
	var content []byte
	for range attempts {
		id := strings.ReplaceAll(url.QueryEscape(key), "+", "%20") // Here a "+" is a plus.
		question, err := http.NewRequest(method, node+"/v0/entity?id="+id, strings.NewReader(body))
		if err != nil {
			return answer{}, err
		}
		if token != "" {
			question.Header.Set("Authorization", "Bearer "+token)
		}
		if header != "" {
			question.Header.Set(header, value)
		}
		response, err := client.Do(question)
		if err != nil {
			return answer{}, fmt.Errorf("%w: %v", errUnknown, err)
		}
		content, err = io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return answer{}, fmt.Errorf("%w: %v", errUnknown, err)
		}
		switch response.StatusCode {
		case 503, 504, 507:
		default:
			return answer{response.StatusCode, response.Header.Get("ETag"), string(content)}, nil
		}
		if !strings.Contains(response.Header.Get("Dendra-Receipt"), "outcome=not-applied") {
			return answer{}, fmt.Errorf("%w: %s", errUnknown, content)
		}
		pause, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err != nil {
			pause = 1
		}
		time.Sleep(time.Duration(pause) * time.Second)
	}
	return answer{}, fmt.Errorf("refused: %s", content)
}

// add puts line into the list of lines under key, once.
func add(node, key, line string) error {
	for range attempts {
		now, err := request("GET", node, key, "", "", "")
		if errors.Is(err, errUnknown) {
			continue
		} else if err != nil {
			return err
		}
		header, value, lines := "If-None-Match", "*", []string{}
		switch now.status {
		case 200:
			header, value, lines = "If-Match", now.etag, strings.Fields(now.body)
		case 404:
		default:
			return errors.New(now.body)
		}
		if slices.Contains(lines, line) {
			return nil
		}
		body := strings.Join(append(lines, line), "\n") + "\n"
		done, err := request("PUT", node, key, body, header, value)
		switch {
		case errors.Is(err, errUnknown): // Read again. Both writes have the condition: one can apply.
		case err != nil:
			return err
		case done.status == 201:
			return nil
		case done.status != 412: // 412: another client was faster, so read again.
			return errors.New(done.body)
		}
	}
	return fmt.Errorf("%d attempts were not enough", attempts)
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: client URL ITEM")
	}
	if err := readAccess(); err != nil {
		log.Fatal(err)
	}
	node, item := os.Args[1], os.Args[2]
	put, err := request("PUT", node, "greeting", "hello", "", "")
	if err != nil || put.status != 201 {
		log.Fatal(err, put.body)
	}
	got, err := request("GET", node, "greeting", "", "", "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("greeting:", got.body)

	if err := add(node, "cart", item); err != nil {
		log.Fatal(err)
	}
	cart, err := request("GET", node, "cart", "", "", "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("cart:", strings.Join(strings.Fields(cart.body), " "))
}
