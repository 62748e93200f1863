// Serves the transit engine of Vault, as its packages have it, over HTTP: /v1/transit/{keys,encrypt,decrypt}/NAME.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/hashicorp/vault/builtin/logical/transit"
	"github.com/hashicorp/vault/sdk/framework"
	"github.com/hashicorp/vault/sdk/logical"
)

const mount = "/v1/transit/"

func main() {
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(address string) error {
	storage := &logical.InmemStorage{}
	config := &logical.BackendConfig{
		System:      &logical.StaticSystemView{},
		StorageView: storage,
	}
	backend, err := transit.Backend(context.Background(), config)
	if err != nil {
		return err
	}
	// The framework has come to demand one of each path that makes something, and this path has none.
	for _, path := range backend.Paths {
		if path.ExistenceCheck == nil {
			path.ExistenceCheck = func(context.Context, *logical.Request, *framework.FieldData) (bool, error) { return false, nil }
		}
	}
	if err := backend.Setup(context.Background(), config); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Vault-Token") != "secret" {
			answer(w, http.StatusForbidden, map[string]any{"errors": []string{"permission denied"}})
			return
		}
		data := map[string]any{}
		if err := json.NewDecoder(r.Body).Decode(&data); err != nil && r.ContentLength > 0 {
			answer(w, http.StatusBadRequest, map[string]any{"errors": []string{err.Error()}})
			return
		}
		request := &logical.Request{
			Operation: logical.UpdateOperation,
			Path:      strings.TrimPrefix(r.URL.Path, mount),
			Storage:   storage,
			Data:      data,
		}
		response, err := backend.HandleRequest(r.Context(), request)
		if err == nil && response != nil && response.IsError() {
			err = response.Error()
		}
		if status, cause := logical.RespondErrorCommon(request, response, err); cause != nil || err != nil {
			if status == 0 {
				status = http.StatusBadRequest
			}
			if cause == nil {
				cause = err
			}
			answer(w, status, map[string]any{"errors": []string{cause.Error()}})
			return
		}
		if response == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		answer(w, http.StatusOK, map[string]any{"data": response.Data})
	}))
}

func answer(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
