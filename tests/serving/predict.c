/* Calls a SavedModel of strings to strings with TensorFlow's C library alone: no Python is involved.

   predict FOLDER INPUT_OPERATION OUTPUT_OPERATION FIRST_OUTPUT SECOND_OUTPUT FILE...

   Each file's bytes are an item of the batch. All strings of both outputs are printed, one a line. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

static TF_Status* status;

static void check(const char* what) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "%s: %s\n", what, TF_Message(status));
  exit(1);
}

static void read_file(const char* path, TF_TString* string) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    exit(1);
  }
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  char* bytes = malloc(size + 1);
  size = fread(bytes, 1, size, file);
  fclose(file);
  TF_StringInit(string);
  TF_StringCopy(string, bytes, size);
  free(bytes);
}

static TF_Tensor* read_batch(int count, char** paths) {
  int64_t shape[] = {count};
  TF_Tensor* batch = TF_AllocateTensor(TF_STRING, shape, 1, count * sizeof(TF_TString));
  TF_TString* strings = TF_TensorData(batch);
  for (int i = 0; i < count; ++i) read_file(paths[i], &strings[i]);
  return batch;
}

static void print_strings(const TF_Tensor* tensor) {
  const TF_TString* strings = TF_TensorData(tensor);
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i) {
    fwrite(TF_StringGetDataPointer(&strings[i]), 1, TF_StringGetSize(&strings[i]), stdout);
    putchar('\n');
  }
}

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  const char* tags[] = {"serve"};
  status = TF_NewStatus();
  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  TF_Session* session = TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, NULL, status);
  check("load");

  TF_Output input = {TF_GraphOperationByName(graph, argv[2]), 0};
  TF_Operation* operation = TF_GraphOperationByName(graph, argv[3]);
  if (input.oper == NULL || operation == NULL) return 2;
  TF_Output outputs[] = {{operation, atoi(argv[4])}, {operation, atoi(argv[5])}};
  TF_Tensor* batch = read_batch(argc - 6, argv + 6);
  TF_Tensor* results[2];
  TF_SessionRun(session, NULL, &input, &batch, 1, outputs, results, 2, NULL, 0, NULL, status);
  check("run");
  print_strings(results[0]);
  print_strings(results[1]);
  return 0;
}
